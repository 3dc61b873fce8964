"""How many messages, content parts and tools one prompt may have, whichever endpoint it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any

from django.conf import settings

from gateway_site.api.errors import InvalidRequest


def require_few_messages(messages: Sized, param: str) -> None:
    """Refuse more messages, or items of an input, than `GATEWAY_MAX_MESSAGES`."""
    _require_at_most("GATEWAY_MAX_MESSAGES", len(messages), param)


def require_few_tools(tools: Sequence[Any] | None, param: str) -> None:
    """Refuse more tools than `GATEWAY_MAX_TOOLS`."""
    _require_at_most("GATEWAY_MAX_TOOLS", len(tools or ()), param)


def require_few_parts(contents: Iterable[Any], param: str) -> None:
    """Refuse more content parts than `GATEWAY_MAX_CONTENT_PARTS`, in all of these contents together."""
    parts = sum(len(content) for content in contents if type(content) is list)
    _require_at_most("GATEWAY_MAX_CONTENT_PARTS", parts, param, "content parts in all")


def _require_at_most(setting: str, count: int, param: str, what: str = "entries") -> None:
    limit = getattr(settings, setting)
    if count > limit:
        raise InvalidRequest(
            f"`{param}` has {count} {what}; at most {limit} are accepted ({setting}).", param=param
        )
