"""A backend that goes on past the output bound is cut, and nobody pays for what it says after that."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from billing.prices.bill import charge
from billing.prices.price import Quantities
from tests.inference.backends.upstreams.faulty.bodies import word
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream, upstream_in_thread
from tests.inference.customer import ApiCustomer, records
from tests.inference.serving.expected_usage import PRICE, observed

BOUND = 40
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


@pytest.fixture
def upstream() -> Iterator[FaultyUpstream]:
    with upstream_in_thread() as upstream:
        yield upstream


def answered(customer: ApiCustomer, model: str, *, stream: bool, **fields: Any) -> tuple[str, set[str]]:
    """The text of all choices, and why they ended."""
    answer = customer.ask(model, stream=stream, max_tokens=BOUND, **fields)
    assert answer.status == 200, answer.body
    if stream:
        assert answer.body.endswith(b"data: [DONE]\n\n")
        choices = [each for record in records(answer.body)[:-1] for each in record["choices"]]
        text = "".join(each["delta"].get("content") or "" for each in choices)
    else:
        choices = json.loads(answer.body)["choices"]
        text = "".join(each["message"]["content"] for each in choices)
    return text, {each["finish_reason"] for each in choices if each["finish_reason"]}


@BOTH
def test_an_answer_without_end_is_cut_soon_after_its_bound(
    customer: ApiCustomer, upstream: FaultyUpstream, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    customer.serve("endless", upstream.url, tokenizer="o200k_base")

    with caplog.at_level(logging.WARNING, "inference.serving.generation"):
        text, reasons = answered(customer, "endless", stream=stream)

    assert reasons == {"length"}
    assert len(text) < 20 * BOUND + 1_000
    reservation = customer.reservation()
    (alert,) = [record.getMessage() for record in caplog.records if "output bound" in record.getMessage()]
    assert str(reservation.pk) in alert
    assert f"server at {upstream.url}" in alert
    assert "model endless" in alert
    assert (reservation.state, reservation.basis) == ("settled", "observed")
    asked = Quantities(prompt=observed(0).prompt, completion=BOUND)
    assert reservation.charged_nanousd == charge(PRICE, asked)
    assert not reservation.operator_loss_nanousd


@BOTH
def test_every_choice_is_ended(customer: ApiCustomer, upstream: FaultyUpstream, stream: bool) -> None:
    customer.serve("endless", upstream.url, tokenizer="o200k_base")

    answer = customer.ask("endless", stream=stream, max_tokens=BOUND, n=2)

    body = records(answer.body)[:-1] if stream else [json.loads(answer.body)]
    ended = [each["index"] for record in body for each in record["choices"] if each["finish_reason"]]
    assert sorted(ended) == [0, 1]


@BOTH
@pytest.mark.parametrize("model", ["ok", "drip_bytes"])
def test_an_answer_that_keeps_to_its_bound_is_whole(
    customer: ApiCustomer, upstream: FaultyUpstream, stream: bool, model: str
) -> None:
    """Also where the server sends every character apart."""
    customer.serve(f"{model}?tokens={BOUND}", upstream.url)

    text, reasons = answered(customer, f"{model}?tokens={BOUND}", stream=stream)

    assert text == "".join(word(position) for position in range(BOUND))
    assert reasons == {"stop"}
