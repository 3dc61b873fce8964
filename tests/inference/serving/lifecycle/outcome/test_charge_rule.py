"""The rule of who pays, over every combination of what it is asked."""

from __future__ import annotations

import itertools

import pytest

from billing.models import EndedBy
from inference.serving.lifecycle.outcome import ChargeRule, charge_rule

NOT_COMPLETE = [ended_by for ended_by in EndedBy if ended_by is not EndedBy.COMPLETE]


def rule(
    ended_by: EndedBy,
    *,
    is_complete: bool = False,
    is_waived: bool = False,
    is_provably_free: bool = False,
    has_output: bool = False,
) -> ChargeRule:
    return charge_rule(
        ended_by,
        is_complete=is_complete,
        is_waived=is_waived,
        is_provably_free=is_provably_free,
        has_output=has_output,
    )


def test_a_complete_answer_is_never_unknown() -> None:
    for ended_by, has_output in itertools.product(EndedBy, (False, True)):
        assert rule(ended_by, is_complete=True, has_output=has_output) is ChargeRule.USAGE


@pytest.mark.parametrize("ended_by", NOT_COMPLETE)
def test_what_was_seen_is_charged_whoever_ended_it(ended_by: EndedBy) -> None:
    assert rule(ended_by, has_output=True) is ChargeRule.USAGE


@pytest.mark.parametrize("ended_by", NOT_COMPLETE)
def test_what_is_provably_free_is_charged_to_nobody(ended_by: EndedBy) -> None:
    assert rule(ended_by, is_provably_free=True) is ChargeRule.NOTHING


@pytest.mark.parametrize("ended_by", NOT_COMPLETE)
def test_where_nothing_was_seen_a_client_pays_for_the_prompt_and_the_others_are_unknown(
    ended_by: EndedBy,
) -> None:
    expected = ChargeRule.PROMPT if ended_by is EndedBy.CLIENT else ChargeRule.UNKNOWN
    assert rule(ended_by) is expected


def test_what_is_waived_is_free_whatever_happened() -> None:
    for ended_by, is_complete, has_output in itertools.product(EndedBy, (False, True), (False, True)):
        waived = rule(ended_by, is_complete=is_complete, has_output=has_output, is_waived=True)
        assert waived is ChargeRule.NOTHING
