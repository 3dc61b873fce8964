"""
Limits on guessing a password of the console (protection against brute force).

An attempt is counted before it is tried, so that many at the same moment are no more than one after another;
a right one is taken back. While a name or an address has to wait, a right password is refused as well, and
unread: the answer and its time say nothing about it. Nobody waits for what others tried, if they have logged
in from the same browser before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from gateway_site.api.rest_rate_limits.limits import Window, network_of

FEW_MINUTES, HOUR = 300, 3600


@dataclass(frozen=True, slots=True)
class AttemptCounter:
    """Attempts of one name, address or browser in a window of time."""

    window: Window
    key: str

    @property
    def group(self) -> str:
        return self.window.group

    def count(self) -> int:
        """Count an attempt. The seconds to wait where there were too many, else 0."""
        return self.window.count(self.key)

    def take_back(self) -> None:
        self.window.take_back(self.key)


def login_counters(name: str, address: str, device: str | None) -> list[AttemptCounter]:
    """What counts an attempt to log in: the known browser alone, else the name, the network and both."""
    if device is not None:
        return [AttemptCounter(Window("device", settings.GATEWAY_LOGIN_TRIES, FEW_MINUTES), device)]
    network = network_of(address)
    return [
        AttemptCounter(
            Window("name-and-address", settings.GATEWAY_LOGIN_TRIES, FEW_MINUTES), f"{network} {name}"
        ),
        AttemptCounter(Window("address", settings.GATEWAY_LOGIN_TRIES_PER_ADDRESS, FEW_MINUTES), network),
        AttemptCounter(Window("name", settings.GATEWAY_LOGIN_TRIES_PER_NAME, HOUR), name),
    ]


def old_password_counter(user: Any) -> AttemptCounter:
    """What counts guesses at the old password by somebody who is logged in."""
    return AttemptCounter(Window("old-password", settings.GATEWAY_LOGIN_TRIES, FEW_MINUTES), str(user.pk))


def take_back(counters: Iterable[AttemptCounter]) -> None:
    """Uncount an attempt that was right, or was not tried."""
    for counter in counters:
        counter.take_back()
