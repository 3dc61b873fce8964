"""Sessions stay with one deployment, and what a backend sees of a client is isolated to its project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from billing.models import Reservation
from inference.catalog import served_models
from organization.models import Project
from tests.harness.error_checks import assert_error
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream, upstream_in_thread
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, ApiCustomer, text_of


@pytest.fixture(scope="module")
def upstream() -> Iterator[FaultyUpstream]:
    with upstream_in_thread() as running:
        yield running


def ask_upstream(customer: ApiCustomer, upstream: FaultyUpstream, **options: Any) -> dict[str, Any]:
    backend = make_backend(
        "upstream",
        "openai",
        base_url=f"{upstream.url}/v1",
        credential="sk-ours",
        options={"server": "openai"},
    )
    deploy(make_model("ok", **COLUMNS), backend)
    served_models.forget()
    assert customer.ask("ok", **options).status == 200
    return upstream.last.body


def test_no_header_of_the_client_and_not_its_key_goes_out(
    customer: ApiCustomer, upstream: FaultyUpstream
) -> None:
    ask_upstream(customer, upstream, headers={"X-Service-Session-ID": "mine", "X-Custom": "secret"})

    sent = str(upstream.last.headers) + str(upstream.last.body)
    assert upstream.last.headers["authorization"] == "Bearer sk-ours"
    assert customer.value not in sent
    assert "secret" not in sent
    assert "mine" not in sent


def test_hints_are_isolated_to_a_project(
    customer: ApiCustomer, upstream: FaultyUpstream, rival_project: Project
) -> None:
    rival = ApiCustomer.of(rival_project)
    asked = {"prompt_cache_key": "shared-name"}

    ours = ask_upstream(customer, upstream, **asked)["prompt_cache_key"]
    again = ask_upstream(customer, upstream, **asked)["prompt_cache_key"]
    theirs = ask_upstream(rival, upstream, **asked)["prompt_cache_key"]
    session = ask_upstream(customer, upstream, headers={"X-Service-Session-ID": "shared-name"})

    assert ours == again != theirs
    assert len(ours) == 64
    assert "shared-name" not in ours
    # The same words as another kind of hint are another hint.
    assert session["prompt_cache_key"] not in (ours, theirs)


def test_the_bound_that_goes_out_is_the_lowered_one(customer: ApiCustomer, upstream: FaultyUpstream) -> None:
    body = ask_upstream(customer, upstream, max_tokens=900_000)

    assert body["max_completion_tokens"] == COLUMNS["max_output_length"]


def test_a_session_goes_to_one_deployment(customer: ApiCustomer) -> None:
    model, backend = make_model("spread", **COLUMNS), make_backend()
    for words in range(1, 5):
        deploy(model, backend, f"paced-{words}x0")
    ours = {text_of(customer.ask("spread", headers={"X-Alt-Session-ID": "one"})) for _ in range(8)}
    others = {text_of(customer.ask("spread", headers={"X-Alt-Session-ID": f"s{n}"})) for n in range(30)}

    assert len(ours) == 1
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
def test_a_malformed_session_id_is_refused(customer: ApiCustomer, headers: dict[str, str]) -> None:
    customer.simulate("echo")

    assert_error(customer.ask("echo", headers=headers), 400, "invalid_request")
    assert not Reservation.objects.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Service-Session-ID": "x" * 512},
        {"X-Alt-Session-ID": "~ two words !"},
        {"X-Service-Session-ID": "same", "X-Alt-Session-ID": "same"},
    ],
)
def test_a_session_id_is_accepted(customer: ApiCustomer, headers: dict[str, str]) -> None:
    customer.simulate("echo")

    assert customer.ask("echo", headers=headers).status == 200
