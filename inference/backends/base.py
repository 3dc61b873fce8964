"""
What a backend is: the protocol that every kind of backend implements.

A backend object stands for one address with its credentials. It is shared by all requests of a process,
so `generate` keeps what belongs to a request in its own frame.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from gateway_site.api.errors import UnsupportedOption
from gateway_site.http_client.client import Dispatch
from inference.backends.model_list import UpstreamModel
from inference.events import Event
from inference.prompt import Prompt

# Encodes a body as JSON, off the event loop where it is large.
EncodeBody = Callable[[Mapping[str, Any]], Awaitable[bytes]]


async def nothing_to_mark() -> None:
    """The Dispatch of a request whose hold is marked already, and of tests."""


class InferenceBackend(Protocol):
    """What the gateway asks of a backend. Subclass it: only `lacks` and `generate` have no default."""

    # Names of `inference.prompt.Option`. A prompt that uses one is refused with 501 before anything is
    # reserved; `generate` may rely on not seeing them.
    lacks: frozenset[str]

    def generate(self, prompt: Prompt, *, model: str, dispatch: Dispatch) -> AsyncGenerator[Event, None]:
        """
        Yield the events of one request. `model` is the model's id on this backend.

        - **Order.** Completions may interleave. Each ends with its one Finish, and nothing follows that
          but Usage. Usage may come several times, each counting from the start; the last one counts and
          comes after every Finish. A backend that got no usage, or nonsense, yields none: the
          gateway then counts what it saw.
        - **dispatch** is awaited once, before the first byte of the request leaves this process (after
          the connection stands, where the client library lets us see that). If it raises, nothing is
          sent. Until it returned the request is provably free; from then on only the backend knows.
        - **Errors** are BackendError and its children, raised at any time. `is_free` on them says that
          the backend is known to have generated nothing; only such a one may be tried elsewhere.
          A stream that ends before every Finish is BackendFailed. What upstream said in words never
          reaches a client, except the message of ProviderRejected.
        - **Cancellation.** The caller closes the generator (`aclosing`) or cancels the task that reads
          it. Either closes the connection upstream before the generator is done: an upstream that still
          generates is money. So no `yield` inside a `TaskGroup` or `timeout`, and no shielding.
        """
        ...

    async def list_models(self) -> list[UpstreamModel]:
        """
        The models that the backend says it has, or ModelListFailed. Probes ask it as a health check.

        Empty for a backend without a list, whose kind then says so (`has_model_list`).
        """
        return []

    async def count_tokens(self, body: Mapping[str, Any], encode: EncodeBody) -> int | None:
        """
        Input tokens of a Messages-shaped body as the backend counts them; None where it cannot count.

        Generates nothing. Errors are BackendError; the caller falls back to its own count, except
        after ProviderRejected.
        """
        return None


def require_options(prompt: Prompt, lacks: frozenset[str]) -> None:
    """Refuse a prompt that uses what the backend does not implement, naming the field that asked."""
    for option, param in prompt.options_used.items():
        if option in lacks:
            raise UnsupportedOption(param=param)
