"""A developer asks where the time of a request went, and finds it in the answer's head."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.harness.client import Answer
from tests.inference.customer import ApiCustomer

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def steps_of(answer: Answer) -> dict[str, float]:
    pairs = [part.split(";dur=") for part in answer.headers["server-timing"].split(", ")]
    return {name: float(milliseconds) for name, milliseconds in pairs}


@BOTH
def test_it_works(customer: ApiCustomer, settings: Any, stream: bool) -> None:
    settings.GATEWAY_SERVER_TIMING = True
    customer.simulate("echo")

    answer = customer.ask("echo", stream=stream)

    steps = steps_of(answer)
    assert re.fullmatch(r"(\w+;dur=\d+\.\d{3}(, |$))+", answer.headers["server-timing"])
    # The head of a stream is gone before its settlement.
    wanted = {"auth", "parse", "reserve", "judge", "upstream"} | (set() if stream else {"settle"})
    assert set(steps) == wanted
    assert sum(steps.values()) <= customer.activity().total_ms + 1
    assert steps["reserve"] > 0


@BOTH
def test_there_is_no_server_timing_by_default(customer: ApiCustomer, stream: bool) -> None:
    customer.simulate("echo")

    assert "server-timing" not in customer.ask("echo", stream=stream).headers
