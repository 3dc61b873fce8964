"""
Decides about requests whose process is gone: nobody renewed their lease.

Any process may sweep, and all do. It only looks for candidates here; each is decided in an ordinary batch of
the ledger, under the account's lock and by the row as it is then. Two sweepers, or a sweeper and a settlement
that comes late after all, cannot both win. (Locking the rows here with SKIP LOCKED would take reservation and
account in the wrong order.)
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection
from django.db.models import Q
from django.db.models.functions import Now

from billing.ledger import get_ledger
from billing.models import Reservation
from billing.operations import Expire, Outcome, State
from gateway_site.api.errors import ApiError

logger = logging.getLogger(__name__)

# In one go; the rest is there again in the next.
MOST = 1_000


@dataclass(frozen=True, slots=True)
class Swept:
    """How many reservations went where."""

    released: int = 0
    settled: int = 0
    unknown: int = 0
    written_off: int = 0

    @property
    def total(self) -> int:
        return self.released + self.settled + self.unknown + self.written_off


def sweep(now: datetime | None = None) -> Swept:
    """Resolve what has expired, by the database's clock unless told another time."""
    candidates = expired(now)
    answers = get_ledger().call_all([Expire(place, owner, now) for place, owner in candidates])
    won: Counter[str | None] = Counter(
        answer.state for answer in answers if isinstance(answer, Outcome) and answer.won
    )
    swept = Swept(
        released=won[State.RELEASED],
        settled=won[State.SETTLED],
        unknown=won[State.UNKNOWN],
        written_off=won[State.WRITTEN_OFF],
    )
    if swept.total:
        logger.info(
            "swept: %d released, %d settled, %d unknown, %d written off",
            swept.released,
            swept.settled,
            swept.unknown,
            swept.written_off,
        )
    return swept


def expired(now: datetime | None = None) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Ids of reservations that have expired, with their organizations', oldest first."""
    moment: Any = now or Now()
    too_old = moment - timedelta(hours=settings.GATEWAY_UNKNOWN_HOURS)
    return list(
        Reservation.objects.filter(
            Q(state=State.HELD, lease_expires_at__lt=moment) | Q(state=State.UNKNOWN, unknown_at__lt=too_old)
        )
        .order_by("admitted_at")
        .values_list("pk", "organization_id")[:MOST]
    )


class Sweeper:
    """A thread that sweeps for as long as the process serves."""

    def __init__(self, every_seconds: float | None = None) -> None:
        self._every_seconds = every_seconds or settings.GATEWAY_SWEEP_SECONDS
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(self._every_seconds)

    def _run(self) -> None:
        # First of all at the start: the process before this one may have crashed.
        is_over = False
        while not is_over:
            try:
                close_old_connections()
                sweep()
            except (DatabaseError, ApiError) as error:
                # The database is away; what has expired will still have expired when it is back.
                logger.warning("could not sweep: %s", type(error).__name__)
            is_over = self._stopped.wait(self._every_seconds)
        connection.close()
