"""What a backend reports is believed only as far as it can be true."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_site.api.errors import BackendFailed, BackendUnreachable, ProviderRejected, UnsupportedOption
from inference.backends.base import require_options
from inference.dialects.chat.parse import _DEFAULTS
from inference.events import (
    COMPLETION_DETAILS,
    DETAILS,
    MAX_SEARCHES_REPORTED,
    MAX_TOKENS_REPORTED,
    PROMPT_DETAILS,
    Usage,
)
from inference.prompt import Option, Prompt, Turn

PROMPT = Prompt(model="m", turns=(Turn(role="user", content="Hi"),))


def test_it_works() -> None:
    usage = Usage.checked(3, 4, cached_tokens=2, reasoning_tokens=1)

    assert usage == Usage(3, 4, cached_tokens=2, reasoning_tokens=1)
    assert usage is not None
    assert usage.total_tokens == 7


@pytest.mark.parametrize("count", [-1, 1.0, 1.5, "1", True, None, float("nan"), [], 2**31, 10**30])
def test_usage_that_is_no_count_is_unknown_and_never_zero(count: Any) -> None:
    assert Usage.checked(count, 1) is None
    assert Usage.checked(1, count) is None


def test_an_explicit_zero_is_a_count() -> None:
    assert Usage.checked(0, 0) == Usage(0, 0)
    assert Usage.checked(0, MAX_TOKENS_REPORTED) == Usage(0, MAX_TOKENS_REPORTED)


def test_a_detail_larger_than_its_whole_is_cut_and_nonsense_is_dropped() -> None:
    assert Usage.checked(5, 6, cached_tokens=9, cache_write_tokens=8, reasoning_tokens=7) == Usage(
        5, 6, cached_tokens=5, cache_write_tokens=0, reasoning_tokens=6
    )
    assert Usage.checked(5, 6, cached_tokens=-1, reasoning_tokens="x") == Usage(5, 6)
    assert Usage.checked(5, 6, web_searches=MAX_SEARCHES_REPORTED + 1) == Usage(5, 6)


@given(st.tuples(*[st.none() | st.integers(-1, 20)] * (2 + len(DETAILS))))
def test_details_are_together_never_more_than_their_whole(reported: tuple[Any, ...]) -> None:
    usage = Usage.checked(*reported[:2], **dict(zip(DETAILS, reported[2:], strict=True)))

    if usage is not None:
        for whole, parts in (
            (usage.prompt_tokens, PROMPT_DETAILS),
            (usage.completion_tokens, COMPLETION_DETAILS),
        ):
            assert sum(getattr(usage, name) or 0 for name in parts) <= whole
        assert Usage.checked(usage.prompt_tokens, usage.completion_tokens, **usage.details) == usage


def test_clients_are_told_of_all_cache_writes_together() -> None:
    assert Usage(5, 6).cache_writes is None
    assert Usage(5, 6, cache_write_tokens=2).cache_writes == 2
    assert Usage(5, 6, cache_write_tokens=2, cache_write_1h_tokens=3).cache_writes == 5


def test_an_option_that_the_backend_lacks_is_refused_by_the_field_that_asked() -> None:
    prompt = Prompt(model="m", turns=(), options_used={"n": "n", "json_schema": "text.format"})

    with pytest.raises(UnsupportedOption) as raised:
        require_options(prompt, frozenset({"json_schema"}))

    assert raised.value.param == "text.format"
    assert raised.value.headers == {"X-Should-Retry": "false"}


def test_lacking_what_is_not_used_refuses_nothing() -> None:
    require_options(PROMPT, frozenset(get_args(Option)))


def test_every_field_that_counts_as_an_option_has_its_name() -> None:
    assert {field for field, _ in _DEFAULTS} <= set(get_args(Option))


def test_only_what_is_known_to_be_free_may_be_repeated() -> None:
    assert BackendUnreachable().is_free
    assert ProviderRejected().is_free
    assert BackendFailed(is_free=True).headers == {}
    assert not BackendFailed().is_free
    assert BackendFailed().headers == {"X-Should-Retry": "false"}
