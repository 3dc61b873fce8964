"""What a request has used, at any moment, by the backend's figures and the gateway's own count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from billing.models import ChargeBasis
from billing.prices.price import Quantities
from inference.events import Event, Finish, TextDelta, Usage, WebSearch
from inference.serving.usage_meter import UsageMeter
from inference.tokenizer import LIKELY_AROUND_A_PROMPT, LIKELY_AROUND_A_TURN
from tests.inference.backends.upstreams.faulty.server import FaultyUpstream, upstream_in_thread
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, ApiCustomer
from tests.inference.serving.expected_usage import count, observed

END = Finish(0, "stop")


def meter(*events: Event, alerts: list[str] | None = None, **options: Any) -> UsageMeter:
    """A meter that has seen these, of a prompt of 5 tokens; every character of the answer is a token."""
    made = UsageMeter(
        **{
            "completions": 1,
            "images": 2,
            "likely_prompt": 5,
            "most_prompt": 100_000,
            "output_bound": 100,
            "count_tokens": len,
            "alert": ([] if alerts is None else alerts).append,
            **options,
        }
    )
    for event in events:
        if isinstance(event, Usage):
            made.report(event)
        else:
            made.count(event)
    return made


def used(counted: UsageMeter) -> Quantities:
    usage = counted.usage()
    assert usage is not None
    return counted.quantities(usage)


def test_it_works() -> None:
    whole = meter(TextDelta(0, "word"), END, Usage(7, 4))

    assert used(whole) == Quantities(prompt=7, completion=4, images=2)
    assert whole.basis == ChargeBasis.USAGE


def test_every_figure_that_is_reported_is_counted() -> None:
    usage = Usage(
        300_000,
        50,
        cached_tokens=1_000,
        cache_write_tokens=8_000,
        cache_write_1h_tokens=1_000,
        audio_input_tokens=200,
        reasoning_tokens=30,
        audio_output_tokens=10,
        web_searches=3,
    )

    assert used(meter(TextDelta(0, "word"), END, usage)) == Quantities(
        prompt=300_000,
        cached=1_000,
        cache_write=8_000,
        cache_write_1h=1_000,
        audio_input=200,
        completion=50,
        reasoning=30,
        audio_output=10,
        images=2,
        web_searches=3,
    )


def test_an_answer_without_usage_is_counted_and_its_prompt_as_at_admission() -> None:
    assert used(meter(TextDelta(0, "wor"), TextDelta(0, "d"), END)) == Quantities(
        prompt=5, completion=4, images=2
    )
    assert used(meter(END)) == Quantities(prompt=5, images=2)


def test_while_nothing_was_seen_only_the_prompt_is_known() -> None:
    nothing = meter()

    assert nothing.usage() is None
    assert nothing.prompt_estimate() == Quantities(prompt=5, images=2)


def test_the_input_that_is_reported_first_is_believed_and_the_output_counted() -> None:
    first = Usage(42, 0, cached_tokens=30, cache_write_tokens=2)

    before_the_answer = meter(first)
    cut_off = meter(first, TextDelta(0, "word"))

    prompt = {"prompt": 42, "cached": 30, "cache_write": 2, "images": 2}
    assert before_the_answer.prompt_estimate() == Quantities(**prompt)
    assert not before_the_answer.has_output
    assert used(cut_off) == Quantities(completion=4, **prompt)
    assert cut_off.prompt_estimate() == Quantities(**prompt)
    assert cut_off.basis == ChargeBasis.OBSERVED
    assert meter(first, END).basis == ChargeBasis.OBSERVED


def test_the_input_as_another_backend_counts_it_replaces_that_of_the_first() -> None:
    alerts: list[str] = []

    assert used(meter(Usage(42, 0), Usage(20, 0), TextDelta(0, "word"), alerts=alerts)).prompt == 20
    assert used(meter(Usage(42, 0), TextDelta(0, "word"), Usage(20, 4), alerts=alerts)).prompt == 42
    assert alerts == ["it shrank"]


def test_searches_are_counted_where_they_are_not_reported() -> None:
    searches = [WebSearch(0, "a"), WebSearch(0, "b")]

    assert used(meter(*searches, TextDelta(0, "word"), END, Usage(7, 4))).web_searches == 2
    assert used(meter(*searches, TextDelta(0, "word"), END, Usage(7, 4, web_searches=1))).web_searches == 1


def test_details_still_fit_an_answer_that_is_cut_at_its_bound() -> None:
    pieces = [TextDelta(0, "x" * 10)] * 30
    endless = meter(*pieces, Usage(7, 60, reasoning_tokens=50, audio_output_tokens=10), output_bound=10)

    assert endless.is_past_bound
    assert used(endless) == Quantities(prompt=7, completion=10, reasoning=10, images=2)


# --- Through a backend --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def upstream() -> Iterator[FaultyUpstream]:
    with upstream_in_thread() as running:
        yield running


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_long_prompt_with_cache_writes_is_charged_for_them(
    customer: ApiCustomer, upstream: FaultyUpstream, stream: bool
) -> None:
    customer.serve("usage_details", upstream.url)

    assert customer.ask("usage_details", stream=stream).status == 200

    row = customer.reservation()
    assert row.basis == ChargeBasis.USAGE
    assert row.used_quantities == Quantities(
        prompt=300_000,
        cached=1_000,
        cache_write=9_000,
        audio_input=200,
        completion=5,
        reasoning=3,
        audio_output=1,
    )


def test_an_answer_that_breaks_off_is_charged_for_the_prompt_that_was_reported_before(
    customer: ApiCustomer, upstream: FaultyUpstream
) -> None:
    backend = make_backend("claude", "anthropic", base_url=upstream.url)
    deploy(make_model("usage_details_cut", **COLUMNS), backend)

    customer.ask("usage_details_cut", stream=True)

    row = customer.reservation()
    assert row.basis == ChargeBasis.OBSERVED
    # Messages counts what is cached beside the rest of the input.
    assert row.used_quantities == Quantities(
        prompt=310_000, cached=1_000, cache_write=9_000, completion=observed(5).completion
    )


@pytest.mark.parametrize("is_exact", [True, False], ids=["exact", "approximate"])
def test_only_an_exact_vocabulary_finds_a_prompt_too_long(customer: ApiCustomer, is_exact: bool) -> None:
    customer.simulate("echo", is_tokenizer_exact=is_exact, context_length=20, max_output_length=15)

    short = customer.ask("echo", "Hello")
    bound = customer.reservation().bound_quantities.completion
    long = customer.ask("echo", "word " * 30)

    assert short.status == 200
    if is_exact:
        assert bound == 20 - count("Hello") - LIKELY_AROUND_A_TURN - LIKELY_AROUND_A_PROMPT
        assert (long.status, long.json["error"]["code"]) == (400, "context_length_exceeded")
    else:
        assert bound == 15
        assert long.status == 200
