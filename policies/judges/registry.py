"""
The kinds of judges, one row each, and which of them this deployment uses.

To add a judge: a module with a class that follows the `Judge` protocol, and a row in JUDGES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from django.conf import settings
from msgspec import Struct

from policies.judges.base import Judge
from policies.judges.logprob import LogprobJudge
from policies.judges.quoted import QuotedJudge


class JudgeKind(Struct, frozen=True):
    """One row of JUDGES: how a kind of judge is made, when it is chosen and what it can answer."""

    make: Callable[..., Judge]
    # For people, after "it answers".
    answers: str
    # The setting that chooses this judge by having a value; without one, it is used where no other is chosen.
    chosen_by: str = ""
    # What `make` is given: its arguments, and the settings that they are taken from.
    settings: Mapping[str, str] = {}


# The first that is chosen is used.
JUDGES: dict[str, JudgeKind] = {
    "logprob": JudgeKind(
        make=LogprobJudge,
        answers="any yes-or-no question",
        chosen_by="GATEWAY_JUDGE_BASE_URL",
        settings={
            "base_url": "GATEWAY_JUDGE_BASE_URL",
            "model": "GATEWAY_JUDGE_MODEL",
            "api_key": "GATEWAY_JUDGE_API_KEY",
            "seconds": "GATEWAY_JUDGE_SECONDS",
        },
    ),
    "quoted": JudgeKind(make=QuotedJudge, answers="only questions that quote a phrase"),
}


def chosen_kind() -> JudgeKind:
    """The row of the judge that the settings choose."""
    chosen = (kind for kind in JUDGES.values() if kind.chosen_by and getattr(settings, kind.chosen_by))
    default = (kind for kind in JUDGES.values() if not kind.chosen_by)
    return next(chosen, None) or next(default)


def current_judge() -> Judge:
    """The judge that the settings choose, the same object for as long as they stay the same."""
    kind = chosen_kind()
    return _made(
        kind.make, tuple((name, getattr(settings, setting)) for name, setting in kind.settings.items())
    )


@lru_cache(maxsize=4)
def _made(make: Callable[..., Judge], arguments: tuple[tuple[str, object], ...]) -> Judge:
    return make(**dict(arguments))
