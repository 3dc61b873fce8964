"""Ages as arguments of commands."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import timedelta

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
# Five digits: 270 years at the most.
AGE = re.compile(r"([0-9]{1,5})([smhd])")


def age_argument(text: str) -> timedelta:
    """For `type=`: a number and its unit, such as 90s, 30m, 2h or 1d."""
    found = AGE.fullmatch(text.strip())
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not an age such as 90s, 30m, 2h or 1d.")
    return timedelta(**{UNITS[found[2]]: int(found[1])})
