"""Amounts as arguments of commands."""

from __future__ import annotations

from argparse import ArgumentTypeError

from billing.money import parse_usd


def usd_argument(text: str) -> int:
    """For `type=`: USD as nano-USD."""
    try:
        return parse_usd(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
