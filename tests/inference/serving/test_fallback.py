"""Which deployment answers, what another may be asked for, and what a backend gets to see of a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from billing.models import Reservation
from inference.activity.writer import writer
from inference.catalog import served_models
from inference.models import Activity
from inference.serving.load_balancing.circuit_breaker import FAILURES_TO_OPEN
from inference.serving.load_balancing.load_balancer import load_balancer
from organization.models import Project
from tests.harness.error_checks import assert_error
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream, upstream_in_thread
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, HELLO, Gateway, text_of

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
FIRST = 1_000_000  # a weight that is asked first, for all that a test will ever see


@pytest.fixture(scope="module")
def upstream() -> Iterator[FaultyUpstream]:
    with upstream_in_thread() as running:
        yield running


@pytest.fixture(autouse=True)
def _closed_circuits() -> None:
    load_balancer._circuits.clear()


def make_pair(first: str) -> None:
    """A model that the simulator's `first` is asked for, and then its `echo`."""
    model, backend = make_model("pair", **COLUMNS), make_backend()
    deploy(model, backend, first, weight=FIRST)
    deploy(model, backend, "echo", weight=1)


@BOTH
@pytest.mark.parametrize("first", ["fails-refused", "fails-500", "fails-busy", "fails-501"])
def test_another_deployment_is_asked_where_nothing_can_be_owed(
    gateway: Gateway, first: str, stream: bool
) -> None:
    make_pair(first)

    answer = gateway.ask("pair", stream=stream)

    assert text_of(answer) == HELLO
    row, activity = gateway.reservation(), gateway.activity()
    assert (row.state, row.basis) == ("settled", "usage")
    assert (activity.attempts, activity.deployment, activity.status) == (2, "simulator/echo", 200)


@BOTH
@pytest.mark.parametrize(
    ("first", "status", "state"), [("fails-reset", 502, "unknown"), ("fails-rejected", 422, "released")]
)
def test_no_other_is_asked_where_something_may_be_or_nothing_would_help(
    gateway: Gateway, first: str, status: int, state: str, stream: bool
) -> None:
    make_pair(first)

    assert gateway.ask("pair", stream=stream).status == status
    assert gateway.reservation().state == state
    assert gateway.activity().attempts == 1


@BOTH
def test_no_other_is_asked_after_the_first_word(gateway: Gateway, stream: bool) -> None:
    make_pair("fails-cut-midway")

    answer = gateway.ask("pair", stream=stream)

    assert answer.status == (200 if stream else 502)
    assert HELLO not in str(answer.body)
    assert gateway.activity().attempts == 1


def test_when_all_fail_the_last_ones_error_is_told(gateway: Gateway) -> None:
    model, backend = make_model("pair", **COLUMNS), make_backend()
    deploy(model, backend, "fails-500", weight=FIRST)
    deploy(model, backend, "fails-busy", weight=1)

    assert_error(gateway.ask("pair"), 429, "backend_busy")
    assert gateway.reservation().state == "released"


def test_a_deployment_that_fails_is_asked_last_for_a_while(gateway: Gateway) -> None:
    make_pair("fails-500")

    for _ in range(FAILURES_TO_OPEN):
        gateway.ask("pair")
    gateway.ask("pair")

    writer.flush()
    latest = Activity.objects.latest("created_at")
    assert (latest.attempts, latest.deployment) == (1, "simulator/echo")


def test_a_clients_own_fault_does_not_count_against_a_deployment(gateway: Gateway) -> None:
    make_pair("fails-rejected")

    for _ in range(FAILURES_TO_OPEN + 1):
        assert gateway.ask("pair").status == 422


# --- what a backend sees ------------------------------------------------------------------------------


def ask_upstream(gateway: Gateway, upstream: FaultyUpstream, **options: Any) -> dict[str, Any]:
    backend = make_backend(
        "upstream",
        "openai",
        base_url=f"{upstream.url}/v1",
        credential="sk-ours",
        options={"server": "openai"},
    )
    deploy(make_model("ok", **COLUMNS), backend)
    served_models.forget()
    assert gateway.ask("ok", **options).status == 200
    return upstream.last.body


def test_no_header_of_the_client_and_not_its_key_goes_out(gateway: Gateway, upstream: FaultyUpstream) -> None:
    ask_upstream(gateway, upstream, headers={"X-Service-Session-ID": "mine", "X-Custom": "secret"})

    sent = str(upstream.last.headers) + str(upstream.last.body)
    assert upstream.last.headers["authorization"] == "Bearer sk-ours"
    assert gateway.value not in sent
    assert "secret" not in sent
    assert "mine" not in sent


def test_hints_are_isolated_to_a_project(
    gateway: Gateway, upstream: FaultyUpstream, rival_project: Project
) -> None:
    rival = Gateway.of(rival_project)
    asked = {"prompt_cache_key": "shared-name"}

    ours = ask_upstream(gateway, upstream, **asked)["prompt_cache_key"]
    again = ask_upstream(gateway, upstream, **asked)["prompt_cache_key"]
    theirs = ask_upstream(rival, upstream, **asked)["prompt_cache_key"]
    session = ask_upstream(gateway, upstream, headers={"X-Service-Session-ID": "shared-name"})

    assert ours == again != theirs
    assert len(ours) == 64
    assert "shared-name" not in ours
    # The same words as another kind of hint are another hint.
    assert session["prompt_cache_key"] not in (ours, theirs)


def test_the_bound_that_goes_out_is_the_lowered_one(gateway: Gateway, upstream: FaultyUpstream) -> None:
    body = ask_upstream(gateway, upstream, max_tokens=900_000)

    assert body["max_completion_tokens"] == COLUMNS["max_output_length"]


def test_a_session_goes_to_one_deployment(gateway: Gateway) -> None:
    model, backend = make_model("spread", **COLUMNS), make_backend()
    for place in range(4):
        deploy(model, backend, f"paced-{place + 1}x0")
    said = {text_of(gateway.ask("spread", headers={"X-Alt-Session-ID": "one"})) for _ in range(8)}
    others = {text_of(gateway.ask("spread", headers={"X-Alt-Session-ID": f"s{n}"})) for n in range(30)}

    assert len(said) == 1
    assert len(others) > 1


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Service-Session-ID": ""},
        {"X-Service-Session-ID": "x" * 513},
        {"X-Service-Session-ID": "caf\u00e9"},
        {"X-Alt-Session-ID": "tab\there"},
        {"X-Service-Session-ID": "a", "X-Alt-Session-ID": "b"},
    ],
)
def test_a_session_id_that_is_none(gateway: Gateway, headers: dict[str, str]) -> None:
    gateway.simulate("echo")

    assert_error(gateway.ask("echo", headers=headers), 400, "invalid_request")
    assert not Reservation.objects.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Service-Session-ID": "x" * 512},
        {"X-Alt-Session-ID": "~ two words !"},
        {"X-Service-Session-ID": "same", "X-Alt-Session-ID": "same"},
    ],
)
def test_a_session_id(gateway: Gateway, headers: dict[str, str]) -> None:
    gateway.simulate("echo")

    assert gateway.ask("echo", headers=headers).status == 200
