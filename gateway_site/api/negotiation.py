"""Content negotiation: responses are JSON, whatever a client accepts."""

from __future__ import annotations

from typing import Any

from rest_framework.negotiation import BaseContentNegotiation


class AlwaysJSON(BaseContentNegotiation):
    """The SDKs send `Accept: application/json` even for streams, and tools send what they like."""

    def select_parser(self, request: Any, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Any, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type
