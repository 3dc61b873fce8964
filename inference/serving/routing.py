"""Routing of the paths that are served ahead of Django: one for each dialect, and token counting."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from inference.dialects import registry
from inference.dialects.messages.count_tokens import PATH as TOKEN_COUNT_PATH
from inference.serving.consumers import GenerationConsumer
from inference.serving.count_tokens_consumer import count_tokens


class PathRouter:
    """
    An ASGI application: these paths, exactly as they are written, and another application for all others.

    A lookup, because the paths have no parameters: Channels' URLRouter matches patterns, which costs every
    request as much as reading its body.
    """

    # Tells asgiref, which looks for `async def`, that a call is the whole request.
    _asgi_single_callable = True

    def __init__(self, otherwise: Any) -> None:
        self._otherwise = otherwise
        self._consumers: dict[str, Any] = {
            dialect.path: GenerationConsumer(dialect) for dialect in registry.DIALECTS
        }
        self._consumers[TOKEN_COUNT_PATH] = count_tokens

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        served: Awaitable[None] = self._consumers.get(scope["path"], self._otherwise)(scope, receive, send)
        return served
