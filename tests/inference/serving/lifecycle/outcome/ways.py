"""The ways to ask for an answer, and what a test waits for and checks in each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from billing.models import ChargeBasis, EndedBy, ReservationState
from billing.prices.bill import charge
from billing.prices.price import Quantities
from inference.serving.generation import Generation
from inference.serving.lifecycle.request_task import running_requests
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, HELLO, ApiCustomer
from tests.inference.serving.expected_usage import PRICE, count, observed, reported
from tests.inference.serving.paced_client import Caller, run

State = ReservationState
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}
# By the kind that is tested: the backend's own kind, its options, and where its API begins.
BACKENDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "openai_chat": ("openai", {}, "/v1"),
    "openai_responses": ("openai", {"api": "responses"}, "/v1"),
    "anthropic": ("anthropic", {}, ""),
}
SIMULATOR = "simulator"
UNREACHABLE = "http://127.0.0.1:9"
# The simulator's words before it fails midway, each of one token; the upstream's.
SIMULATED_WORDS, UPSTREAM_WORDS = 3, 5


@dataclass(frozen=True)
class Way:
    """One endpoint, JSON or a stream, one kind of backend."""

    dialect: str
    stream: bool
    kind: str

    def __str__(self) -> str:
        return f"{self.dialect}-{'stream' if self.stream else 'json'}-{self.kind}"

    @property
    def is_simulated(self) -> bool:
        return self.kind == SIMULATOR

    @property
    def words(self) -> int:
        """How many words an answer has said when it breaks off midway."""
        return SIMULATED_WORDS if self.is_simulated else UPSTREAM_WORDS

    def seen(self) -> Quantities:
        """The prompt as the gateway counts it, and the words of an answer that breaks off midway."""
        if self.is_simulated:
            return Quantities(prompt=observed(0).prompt, completion=SIMULATED_WORDS)
        return observed(UPSTREAM_WORDS)

    def reported(self, simulated_words: int) -> Quantities:
        if self.is_simulated:
            return Quantities(prompt=count(HELLO), completion=simulated_words)
        return reported()


def every_way(**only: Any) -> pytest.MarkDecorator:
    """Parametrize a test by `way`: all of them, or those with these values."""
    ways = [
        Way(dialect, stream, kind)
        for dialect in PATHS
        for stream in (False, True)
        for kind in (*BACKENDS, SIMULATOR)
    ]
    chosen = [way for way in ways if all(getattr(way, name) == value for name, value in only.items())]
    return pytest.mark.parametrize("way", chosen, ids=str)


@dataclass
class Gateway:
    """A customer, a backend that does as the model's name says, and one request to it."""

    customer: ApiCustomer
    upstream: FaultyUpstream

    def serve(
        self, way: Way, script: str, simulated: str = "", *, url: str = "", weight: int | None = None
    ) -> None:
        """Deploy the model on a backend that plays this script, or that of the simulator."""
        model = make_model("model", **COLUMNS)
        if way.is_simulated:
            deploy(model, make_backend(), simulated)
        else:
            kind, options, prefix = BACKENDS[way.kind]
            address = f"{url or self.upstream.url}{prefix}"
            backend = make_backend("server", kind, base_url=address, options=options)
            deploy(model, backend, script, weight=weight)

    def ask(self, way: Way, then: Callable[[Caller], Awaitable[None]] | None = None) -> Caller:
        """Ask for the model, do what comes `then`, and wait until the request has ended."""

        async def story() -> Caller:
            caller = Caller(self.customer, "model", path=PATHS[way.dialect], stream=way.stream)
            if then is not None:
                await then(caller)
            await caller.ended()
            return caller

        return run(story)

    def assert_charged(self, used: Quantities, basis: ChargeBasis, ended_by: EndedBy, status: int) -> None:
        row, activity = self.customer.reservation(), self.customer.activity()
        assert (row.state, row.basis, row.ended_by) == (State.SETTLED, basis, ended_by)
        assert row.charged_nanousd == charge(PRICE, used)
        assert row.used_quantities == used
        assert self.customer.account.held_nanousd == 0
        assert (activity.status, activity.cost_nanousd) == (status, row.charged_nanousd)
        assert (activity.prompt_tokens, activity.completion_tokens) == (used.prompt, used.completion)

    def assert_released(self, ended_by: EndedBy, status: int) -> None:
        row, activity = self.customer.reservation(), self.customer.activity()
        assert (row.state, row.ended_by) == (State.RELEASED, ended_by)
        assert not row.charged_nanousd
        assert not row.operator_loss_nanousd
        assert self.customer.account.held_nanousd == 0
        assert (activity.status, activity.cost_nanousd) == (status, 0)

    def assert_unknown(self, ended_by: EndedBy, status: int) -> None:
        row, activity = self.customer.reservation(), self.customer.activity()
        assert (row.state, row.ended_by) == (State.UNKNOWN, ended_by)
        assert self.customer.account.held_nanousd == row.reserved_nanousd
        assert (activity.status, activity.cost_nanousd) == (status, None)


async def generation_when(is_reached: Callable[[Generation], bool]) -> Generation:
    """The only running request's generation, once it has come so far. It has no event for that: polled."""
    async with asyncio.timeout(5):
        while True:
            for request in running_requests:
                if request.generation is not None and is_reached(request.generation):
                    return request.generation
            await asyncio.sleep(0.002)


async def until_sent() -> None:
    """Wait until a backend has been asked, of whose answer nothing was seen."""
    generation = await generation_when(lambda generation: not generation.is_provably_free)
    assert not generation._meter.has_output


async def until_seen(words: int) -> None:
    """Wait until so many pieces of an answer were seen, by whoever reads it."""
    await generation_when(lambda generation: generation._meter._pieces == words)
