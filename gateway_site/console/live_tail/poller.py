"""
The poller of the live tail: reads the newest requests once a second while somebody watches.

What is new goes to the process's own group of sockets. Between processes the database carries it: every
process with a watcher reads for itself, so the channel layer never has to leave the process, and requests
themselves do nothing for those who watch.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from channels.layers import get_channel_layer
from django.db import Error as AnyDatabaseError

from billing.money import short_usd
from gateway_site.api.errors import Unavailable
from gateway_site.database.off_loop import off_loop
from inference.models import Activity

logger = logging.getLogger(__name__)

GROUP = "live-tail"
INTERVAL_SECONDS = 1.0
# What is read at a time; of more requests in a second, the newest are shown.
ROWS = 100
COLUMNS = {
    "id": "id",
    "ended_at": "ended_at",
    "organization": "organization__name",
    "project": "project__name",
    "key": "api_key__name",
    "key_value": "api_key__redacted_value",
    "model": "model",
    "status": "status",
    "code": "code",
    "prompt_tokens": "prompt_tokens",
    "completion_tokens": "completion_tokens",
    "cost_nanousd": "cost_nanousd",
    "first_token_ms": "first_token_ms",
    "total_ms": "total_ms",
}

# A request's id, and what the page needs of it as JSON.
Row = tuple[str, str]


def newest_requests() -> list[Row]:
    """The requests that ended last, the newest first."""
    found = Activity.objects.order_by("-ended_at").values_list(*COLUMNS.values())[:ROWS]
    return [_row(dict(zip(COLUMNS, values, strict=True))) for values in found]


def _row(values: dict[str, Any]) -> Row:
    cost_nanousd = values.pop("cost_nanousd")
    shown = {
        **values,
        "id": str(values["id"]),
        "ended_at": values["ended_at"].isoformat(),
        "cost": None if cost_nanousd is None else short_usd(cost_nanousd),
    }
    return shown["id"], json.dumps(shown)


# Its connection is given back as soon as the rows are here.
read_newest = off_loop(newest_requests)


class Poller:
    """Polls the database for a process, from the first watcher's arrival to the last one's departure."""

    def __init__(self) -> None:
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def join(self) -> None:
        self._watchers += 1
        if not self.is_running:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self) -> None:
        self._watchers -= 1
        if self._watchers == 0 and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        seen: set[str] = set()
        while True:
            try:
                rows = await read_newest()
            except (AnyDatabaseError, Unavailable) as error:
                logger.warning("the live tail could not be read: %s", error)
                await self._broadcast([], has_trouble=True)
            else:
                news = [text for identifier, text in rows if identifier not in seen]
                await self._broadcast(news, has_gap=bool(seen) and len(news) == ROWS)
                seen = {identifier for identifier, _ in rows}
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _broadcast(self, news: list[str], *, has_gap: bool = False, has_trouble: bool = False) -> None:
        if news or has_trouble:
            layer = get_channel_layer()
            message = {"type": "tail.news", "rows": news, "has_gap": has_gap, "has_trouble": has_trouble}
            await layer.group_send(GROUP, message)


poller = Poller()
