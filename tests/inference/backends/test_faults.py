"""Every fault of a backend has one outcome, the same for each kind of backend (reliability.md 3.3)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from gateway_site.api.errors import (
    BackendBusy,
    BackendFailed,
    DeadlineExceeded,
    ProviderRejected,
)
from gateway_site.http_client.client import Timeouts
from gateway_site.http_client.failures import OptionNotImplemented, shown_message
from tests.inference.backends.harness import CREDENTIAL, collect, hello
from tests.inference.backends.upstreams.faulty.answers import PLAIN, SCRIPTS

BOTH = pytest.mark.parametrize("kind", ["openai", "anthropic"])
FREE, OWED = True, False

# The fault, its error, the status that the client sees, whether nothing is owed.
BEFORE_ANY_TOKEN = [
    ("400", ProviderRejected, 422, FREE),
    ("400_html", ProviderRejected, 422, FREE),
    ("413", ProviderRejected, 422, FREE),
    ("422", ProviderRejected, 422, FREE),
    ("401", BackendFailed, 502, FREE),
    ("402", BackendFailed, 502, FREE),
    ("403", BackendFailed, 502, FREE),
    ("404", BackendFailed, 502, FREE),
    ("408", DeadlineExceeded, 504, OWED),
    ("429", BackendBusy, 429, FREE),
    ("529", BackendBusy, 429, FREE),
    ("500_empty", BackendFailed, 502, FREE),
    ("500_html", BackendFailed, 502, FREE),
    ("501", OptionNotImplemented, 501, FREE),
    ("502", BackendFailed, 502, FREE),
    ("503", BackendFailed, 502, FREE),
    ("504", DeadlineExceeded, 504, OWED),
    ("redirect", BackendFailed, 502, FREE),
    ("204", BackendFailed, 502, OWED),
    ("html", BackendFailed, 502, OWED),
    ("json_garbage", BackendFailed, 502, OWED),
    ("json_empty", BackendFailed, 502, OWED),
    ("json_error", BackendFailed, 502, FREE),
    ("json_huge", BackendFailed, 502, OWED),
    ("hang_before_headers", DeadlineExceeded, 504, OWED),
    ("hang_after_headers", DeadlineExceeded, 504, OWED),
    ("reset_before_headers", BackendFailed, 502, OWED),
    ("close_before_headers", BackendFailed, 502, OWED),
    ("garbage_head", BackendFailed, 502, OWED),
    ("reset_after_headers", BackendFailed, 502, OWED),
    ("close_at_once", BackendFailed, 502, OWED),
    ("invalid_first", BackendFailed, 502, OWED),
]
AFTER_TOKENS = [
    ("hang_midstream", DeadlineExceeded),
    ("reset_midstream", BackendFailed),
    ("cut_midstream", BackendFailed),
    ("close_without_finish", BackendFailed),
    ("huge_line", BackendFailed),
    ("invalid_json", BackendFailed),
    ("wrong_types", BackendFailed),
    ("invalid_utf8", BackendFailed),
    ("error_midstream", BackendFailed),
]


@BOTH
@pytest.mark.parametrize(("fault", "error", "status", "is_free"), BEFORE_ANY_TOKEN)
def test_a_fault_before_any_token(kind: Any, fault: Any, error: Any, status: Any, is_free: Any) -> None:
    collected = collect(kind, fault)

    assert type(collected.error) is error
    assert collected.error.status == status
    assert collected.error.is_free is is_free
    assert collected.events == []
    assert collected.dispatches == 1


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(("fault", "error"), AFTER_TOKENS)
def test_a_fault_after_tokens_keeps_them_and_is_never_free(kind: Any, fault: Any, error: Any) -> None:
    collected = collect(kind, fault)

    assert type(collected.error) is error
    assert not collected.error.is_free
    assert collected.error.should_retry is False
    assert collected.text == "Hello wörld, this is"
    assert collected.reasons == []


@pytest.mark.slow
@BOTH
def test_an_endless_answer_is_cut_off(kind: Any) -> None:
    collected = collect(kind, "endless", hello(output_bound=1))

    assert isinstance(collected.error, BackendFailed)
    assert collected.exchange.bytes_emitted < 8_000_000


@pytest.mark.slow
@BOTH
def test_the_total_deadline_wins_over_a_drip_that_never_pauses_long(kind: Any) -> None:
    collected = collect(kind, "drip", timeouts=_timeouts(total=0.5))

    assert isinstance(collected.error, DeadlineExceeded)
    assert 2 < collected.exchange.tokens_emitted < 15


@BOTH
def test_slow_headers_are_waited_for(kind: Any) -> None:
    assert collect(kind, "slow_headers").reasons == ["stop"]


@pytest.mark.parametrize(("fault", "seconds"), [("429", 7), ("429_bare", 1), ("429_date", 1)])
def test_busy_says_when_to_come_back(fault: Any, seconds: Any) -> None:
    assert collect("openai", fault).error.headers["Retry-After"] == str(seconds)


def test_loading_says_when_to_come_back() -> None:
    assert collect("openai", "503").error.headers["Retry-After"] == "3"


def test_a_rejection_tells_the_client_what_was_wrong_with_the_request() -> None:
    error = collect("openai", "400").error

    assert error.message == "`max_tokens` must be at most 4096."
    assert error.param == "max_tokens"


@BOTH
def test_error_text_upstream_is_no_output(kind: Any) -> None:
    collected = collect(kind, "error_first")

    assert collected.events == []
    assert collected.error.is_free


@BOTH
@pytest.mark.parametrize("fault", [*PLAIN, *SCRIPTS])
def test_no_error_and_no_log_line_holds_the_credential_or_an_address(
    kind: Any, fault: Any, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)

    error = collect(
        kind, fault, hello(output_bound=1), timeouts=_timeouts(between_bytes=0.2, total=0.4)
    ).error

    said = " ".join([_everything(error), caplog.text]).replace("Incorrect key Bearer [removed]", "").lower()
    for secret in (CREDENTIAL, "Bearer", "127.0.0.1", "10.0.0.7", "provider.example", "sk-live", "://"):
        assert secret.lower() not in said


def test_a_credential_of_any_shape_is_taken_out_of_what_upstream_says() -> None:
    assert shown_message("No such key: correcthorse!", credential="correcthorse") == "No such key: [removed]!"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("line\nbreak\x1b[2J\u202eodd", "line break [2J odd"),
        ("see https://internal.example/a?b=c now", "see [removed] now"),
        ("host 10.1.2.3:8000 said no", "host [removed] said no"),
        ("key sk-proj-abcdefgh12345678 is bad", "key [removed] is bad"),
        ("x" * 10_000, "x" * 500),
        ("größe 東京 😀", "größe 東京 😀"),
        ("", None),
        (None, None),
        (["a"], None),
    ],
)
def test_what_a_client_may_read_of_upstreams_words(said: Any, shown: Any) -> None:
    assert shown_message(said, credential="") == shown


def test_every_answer_on_offer_is_in_a_table_or_has_its_own_test() -> None:
    named = {row[0] for row in BEFORE_ANY_TOKEN} | {row[0] for row in AFTER_TOKENS}
    elsewhere = {"400_leaky", "429_bare", "429_date", "endless", "drip", "slow_headers", "error_first"}
    elsewhere |= {name for name in SCRIPTS if name.startswith(("ok", "usage_", "no_"))}
    elsewhere |= {"cumulative", "drip_bytes", "json", "wrong_index"}

    assert set(PLAIN) | set(SCRIPTS) == named | elsewhere


def _timeouts(**changes: Any) -> Any:
    return Timeouts(**{"connect": 1, "first_byte": 1, "between_bytes": 1, "total": 5, **changes})


def _everything(error: BaseException | None) -> str:
    """All that a renderer, a logger or a debugger could print of it, with what it was raised from."""
    seen, parts = error, list[str]()
    while seen is not None:
        parts += [str(seen), repr(seen), repr(seen.args), repr(vars(seen))]
        seen = seen.__cause__ or seen.__context__
    return " ".join(parts)
