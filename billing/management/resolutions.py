"""The rules for unknown reservations as options of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from billing.reservation_services import UnknownResolution

HELP = {
    UnknownResolution.RELEASE: "nothing is owed: the credit goes back, without a loss",
    UnknownResolution.CHARGE_OBSERVED: "charge what was seen of it; where nothing was, release it at a loss",
    UnknownResolution.WRITE_OFF: "give up; the operator bears the loss",
}


def add_resolutions(add_argument: Callable[..., Any]) -> None:
    """Add an option for each rule to a group, of which a command line has one: `resolution`."""
    for resolution in UnknownResolution:
        option = f"--{resolution.replace('_', '-')}"
        add_argument(option, action="store_const", const=resolution, dest="resolution", help=HELP[resolution])
