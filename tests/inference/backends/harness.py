"""One request to a backend, run to its end with its events collected. For the tests of HTTP backends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from gateway_site.api.errors import BackendError
from gateway_site.http_client.client import Client, Timeouts
from gateway_site.http_client.ssrf_guard import parse_base_url
from inference.backends.anthropic.backend import AnthropicBackend
from inference.backends.base import InferenceBackend
from inference.backends.openai_chat.backend import OpenAIBackend
from inference.events import Event, Finish, ReasoningDelta, TextDelta, Usage
from inference.prompt import Prompt, Turn
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream

CREDENTIAL = "sk-secret-0123456789abcdef"
HASTY = Timeouts(connect=2, first_byte=1, between_bytes=1, total=20)

Make = Callable[[Client, FaultyUpstream], InferenceBackend]


@dataclass
class Collected:
    """The events of one request, or its error, and what the upstream saw."""

    events: list[Event] = field(default_factory=list)
    error: Any = None  # a BackendError, or None if it went well
    dispatches: int = 0
    alerts: list[str] = field(default_factory=list)
    exchange: Any = None  # an Exchange, once the upstream has seen it

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.of(TextDelta))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.of(ReasoningDelta))

    @property
    def usage(self) -> Usage | None:
        return self.of(Usage)[-1] if self.of(Usage) else None

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.of(Finish)]


def hello(**changes: Any) -> Prompt:
    fields: dict[str, Any] = {"model": "public-name", "turns": (Turn(role="user", content="Hi"),)}
    return Prompt(**{**fields, **changes})


def openai_backend(client: Client, upstream: FaultyUpstream, **options: Any) -> OpenAIBackend:
    base_url = parse_base_url(f"{upstream.url}/v1")
    return OpenAIBackend(client, name="faulty", base_url=base_url, api_key=CREDENTIAL, **options)


def anthropic_backend(client: Client, upstream: FaultyUpstream, **options: Any) -> AnthropicBackend:
    base_url = parse_base_url(upstream.url)
    return AnthropicBackend(client, name="faulty", base_url=base_url, api_key=CREDENTIAL, **options)


MAKERS: dict[str, Any] = {"openai": openai_backend, "anthropic": anthropic_backend}


def collect(
    kind: str, model: str, prompt: Prompt | None = None, *, timeouts: Timeouts = HASTY, **options: Any
) -> Collected:
    """Ask a fresh upstream for `model` through a backend of this kind."""

    async def run() -> Collected:
        async with FaultyUpstream() as upstream, Client(timeouts) as client:
            collected = Collected()
            backend = MAKERS[kind](client, upstream, alert=collected.alerts.append, **options)
            await collect_into(collected, backend, model, prompt or hello())
            if upstream.exchanges:
                collected.exchange = upstream.last
            return collected

    return asyncio.run(run())


async def collect_into(collected: Collected, backend: InferenceBackend, model: str, prompt: Prompt) -> None:
    async def dispatch() -> None:
        collected.dispatches += 1

    try:
        async with aclosing(backend.generate(prompt, model=model, dispatch=dispatch)) as events:
            async for event in events:
                collected.events.append(event)
    except BackendError as exc:
        collected.error = exc
