"""What a password of the console must be, beside long and uncommon."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from django.core.exceptions import ValidationError

from gateway_site.console.login.form import MOST_PASSWORD_CHARACTERS

LEAST_STEPS = 6
ROWS = ("abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
# Two characters of which the second goes without saying: next in a row, in either direction.
EASY_PAIRS = {pair for row in ROWS for line in (row, row[::-1]) for pair in pairwise(line)}


class VarietyValidator:
    """Refuses what is one short text over and over, or little more than runs of the alphabet or keyboard."""

    def validate(self, password: str, user: Any = None) -> None:
        text = password.lower()
        steps = 1 + sum(a != b and (a, b) not in EASY_PAIRS for a, b in pairwise(text))
        if steps < LEAST_STEPS or is_repetition(text):
            raise ValidationError(
                "This password repeats itself too much to be hard to guess.", code="unvaried"
            )

    def get_help_text(self) -> str:
        return "Your password must not be a repetition, nor a run of the alphabet, of digits or of keys."


class MaximumLengthValidator:
    """Refuses what a log-in would not take."""

    def validate(self, password: str, user: Any = None) -> None:
        if len(password) > MOST_PASSWORD_CHARACTERS:
            raise ValidationError(
                f"This password is too long: at most {MOST_PASSWORD_CHARACTERS:,} characters.",
                code="too_long",
            )

    def get_help_text(self) -> str:
        return f"Your password must have at most {MOST_PASSWORD_CHARACTERS:,} characters."


def is_repetition(text: str) -> bool:
    """Whether a text is its own beginning at least twice: `abcabcab`."""
    return any(text[period:] == text[:-period] for period in range(1, len(text) // 2 + 1))
