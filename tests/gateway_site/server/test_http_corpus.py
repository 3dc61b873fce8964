"""Clients send what is not HTTP, or too much: each is answered in the envelope, and others are served."""

from __future__ import annotations

import pytest

from tests.gateway_site.server.http_corpus import (
    CASES,
    NEXT,
    Case,
    assert_well_formed,
    attack,
    exchange,
    memory_bytes,
)
from tests.harness.live_server import live_server

pytestmark = pytest.mark.one_database

# The gateway slows those down who come with bad keys, and the corpus comes with none.
SETTINGS = {"GATEWAY_FAILED_LOGINS_PER_MINUTE": "1000000"}
MEBIBYTE = 1024 * 1024


def problem_with(case: Case, port: int) -> str:
    exchanged = exchange(port, case.pieces)
    try:
        assert exchanged.statuses == case.statuses
        assert_well_formed(exchanged)
        assert exchanged.is_closed
    except (AssertionError, ValueError) as error:
        return f"{case.name}: {error}"
    return ""


def test_every_raw_request_is_answered_as_it_should_be(process_environment: dict[str, str]) -> None:
    with live_server(process_environment, settings=SETTINGS) as server:
        problems = [problem for case in CASES if (problem := problem_with(case, server.port))]

        assert not problems, "\n".join(problems)
        assert exchange(server.port, iter([NEXT])).statuses == [200]
        assert attack(server, mutations=1_000, seconds=3, seed=1) > 0
        assert not any("Traceback" in line for line in server.output), server.output


ENDLESS = {
    "target": (b"GET /", b"a" * 60_000),
    "value": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"a" * 60_000),
    "fields": (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n" * 10_000),
    "requests": (b"", NEXT * 1_000),
}


def test_what_has_no_end_takes_no_memory(process_environment: dict[str, str]) -> None:
    with live_server(process_environment) as server:
        for name, (start, piece) in ENDLESS.items():
            assert exchange(server.port, iter([NEXT])).statuses == [200]
            before_bytes = memory_bytes(server.process.pid)
            for _ in range(3):
                assert exchange(server.port, iter([start, *[piece] * 500])).is_closed
            grown_bytes = memory_bytes(server.process.pid) - before_bytes
            assert grown_bytes < 16 * MEBIBYTE, f"{name}: {grown_bytes}"
        assert exchange(server.port, iter([NEXT])).statuses == [200]
