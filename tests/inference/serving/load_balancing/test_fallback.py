"""When a request falls back to another deployment, and when it must not."""

from __future__ import annotations

import pytest

from inference.activity.writer import writer
from inference.models import Activity
from inference.serving.load_balancing.circuit_breaker import FAILURES_TO_OPEN
from inference.serving.load_balancing.load_balancer import load_balancer
from tests.harness.error_checks import assert_error
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, HELLO, ApiCustomer, text_of

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
FIRST = 1_000_000  # a weight that is asked first, for all that a test will ever see


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
def test_a_request_falls_back_where_nothing_can_be_owed(
    customer: ApiCustomer, first: str, stream: bool
) -> None:
    make_pair(first)

    answer = customer.ask("pair", stream=stream)

    assert text_of(answer) == HELLO
    row, activity = customer.reservation(), customer.activity()
    assert (row.state, row.basis) == ("settled", "usage")
    assert (activity.attempts, activity.deployment, activity.status) == (2, "simulator/echo", 200)


@BOTH
@pytest.mark.parametrize(
    ("first", "status", "state"), [("fails-reset", 502, "unknown"), ("fails-rejected", 422, "released")]
)
def test_no_fallback_where_something_may_be_owed_or_no_other_would_do_better(
    customer: ApiCustomer, first: str, status: int, state: str, stream: bool
) -> None:
    make_pair(first)

    assert customer.ask("pair", stream=stream).status == status
    assert customer.reservation().state == state
    assert customer.activity().attempts == 1


@BOTH
def test_no_fallback_after_the_first_word(customer: ApiCustomer, stream: bool) -> None:
    make_pair("fails-cut-midway")

    answer = customer.ask("pair", stream=stream)

    assert answer.status == (200 if stream else 502)
    assert HELLO not in str(answer.body)
    assert customer.activity().attempts == 1


def test_when_all_fail_the_client_gets_the_last_ones_error(customer: ApiCustomer) -> None:
    model, backend = make_model("pair", **COLUMNS), make_backend()
    deploy(model, backend, "fails-500", weight=FIRST)
    deploy(model, backend, "fails-busy", weight=1)

    assert_error(customer.ask("pair"), 429, "backend_busy")
    assert customer.reservation().state == "released"


def test_a_circuit_breaker_keeps_requests_from_a_deployment_that_fails(customer: ApiCustomer) -> None:
    make_pair("fails-500")

    for _ in range(FAILURES_TO_OPEN):
        customer.ask("pair")
    customer.ask("pair")

    writer.flush()
    latest = Activity.objects.latest("created_at")
    assert (latest.attempts, latest.deployment) == (1, "simulator/echo")


def test_a_clients_own_fault_does_not_count_against_a_deployment(customer: ApiCustomer) -> None:
    make_pair("fails-rejected")

    for _ in range(FAILURES_TO_OPEN + 1):
        assert customer.ask("pair").status == 422
