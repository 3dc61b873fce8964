"""A developer asks where the time of a request went, and finds it in the answer's head."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.harness.client import Answer
from tests.inference.customer import Gateway

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def steps_of(answer: Answer) -> dict[str, float]:
    pairs = [part.split(";dur=") for part in answer.headers["server-timing"].split(", ")]
    return {name: float(milliseconds) for name, milliseconds in pairs}


@BOTH
def test_it_works(gateway: Gateway, settings: Any, stream: bool) -> None:
    settings.GATEWAY_SERVER_TIMING = True
    gateway.simulate("echo")

    answer = gateway.ask("echo", stream=stream)

    steps = steps_of(answer)
    assert re.fullmatch(r"(\w+;dur=\d+\.\d{3}(, |$))+", answer.headers["server-timing"])
    # The head of a stream is gone before its settlement.
    wanted = {"auth", "parse", "reserve", "judge", "upstream"} | (set() if stream else {"settle"})
    assert set(steps) == wanted
    assert sum(steps.values()) <= gateway.activity().total_ms + 1
    assert steps["reserve"] > 0


@BOTH
def test_there_is_no_server_timing_by_default(gateway: Gateway, stream: bool) -> None:
    gateway.simulate("echo")

    assert "server-timing" not in gateway.ask("echo", stream=stream).headers
