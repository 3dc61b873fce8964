"""The live tail: a page that shows requests as they end, over a WebSocket for staff."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.db import Error as AnyDatabaseError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from gateway_site.api.errors import Unavailable
from gateway_site.console.live_tail.access import PERMISSION, authorized_user
from gateway_site.console.live_tail.poller import GROUP, poller, read_newest
from gateway_site.database.off_loop import off_loop

SOCKET_PATH = "/admin/tail/socket"
# The heartbeat: how often a socket's person is looked up again, and the page hears that the line is up.
HEARTBEAT_SECONDS = 15.0
# What waits for a browser that does not keep up.
MOST_WAITING = 200
MOST_SOCKETS_OF_A_PERSON, MOST_SOCKETS_OF_A_PROCESS = 5, 50

# Close codes that the page knows; RFC 6455 leaves 4000 to 4999 to applications.
POLICY_VIOLATION, TRY_AGAIN_LATER, NOT_ALLOWED, TOO_MANY = 1008, 1013, 4403, 4429


@require_safe
@permission_required(PERMISSION, raise_exception=True)
def page(request: HttpRequest) -> HttpResponse:
    """Answer the live tail's page: an empty table, which the socket fills."""
    context = {
        **admin.site.each_context(request),
        "title": "Live tail",
        "socket_path": SOCKET_PATH,
        "receipt_path": reverse("admin:inference_activity_change", args=[uuid.UUID(int=0)]),
    }
    return TemplateResponse(request, "admin/live_tail.html", context)


async def sockets(scope: Any, receive: Any, send: Any) -> None:
    """ASGI application of every WebSocket. There is one route; any other is refused, as by a 403."""
    if scope["path"] == SOCKET_PATH:
        await TailConsumer()(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.close"})


class Backlog:
    """Rows that wait for one browser, with backpressure: of too many, the oldest are dropped and counted."""

    def __init__(self) -> None:
        self._rows: deque[str] = deque()
        self._skipped = 0
        self._has_gap = self._has_trouble = False
        self._is_due = asyncio.Event()

    def add(self, rows: Sequence[str], *, has_gap: bool = False, has_trouble: bool = False) -> None:
        """Add rows, the newest first, as they were read."""
        self._rows.extend(reversed(rows))
        while len(self._rows) > MOST_WAITING:
            self._rows.popleft()
            self._skipped += 1
        self._has_gap |= has_gap
        self._has_trouble = has_trouble
        self.heartbeat()

    def heartbeat(self) -> None:
        """Have a heartbeat sent, if only to say that there is nothing."""
        self._is_due.set()

    async def take(self) -> str:
        """Take what is due as one message; waits until something is."""
        await self._is_due.wait()
        self._is_due.clear()
        notes = {"skipped": self._skipped, "has_gap": self._has_gap, "has_trouble": self._has_trouble}
        message = f'{{"rows": [{",".join(self._rows)}], "notes": {json.dumps(notes)}}}'
        self._rows.clear()
        self._skipped, self._has_gap = 0, False
        return message


# The open sockets of this process, by the person's id.
watching: Counter[Any] = Counter()
look_up_user = off_loop(authorized_user)


class TailConsumer(AsyncWebsocketConsumer):
    """The consumer of one socket. It only sends; a browser that cannot keep up delays nobody else."""

    def __init__(self) -> None:
        super().__init__()
        self._backlog = Backlog()
        self._person_id: Any = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._leave()

    async def connect(self) -> None:
        try:
            person = await look_up_user(self.scope)
        except (AnyDatabaseError, Unavailable):
            person = None
        if person is None:
            await self.close()
            return
        await self.accept()
        if watching[person.pk] >= MOST_SOCKETS_OF_A_PERSON or watching.total() >= MOST_SOCKETS_OF_A_PROCESS:
            await self.close(TOO_MANY, "Too many live tails are open.")
            return
        await self._join(person)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await self.close(POLICY_VIOLATION, "Nothing is expected from the page.")

    async def tail_news(self, message: dict[str, Any]) -> None:
        """Receive new rows from the poller, by the channel layer."""
        self._backlog.add(message["rows"], has_gap=message["has_gap"], has_trouble=message["has_trouble"])

    async def _join(self, person: Any) -> None:
        self._person_id = person.pk
        watching[person.pk] += 1
        await self.channel_layer.group_add(GROUP, self.channel_name)
        poller.join()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send_backlog()), loop.create_task(self._recheck_access())]
        # After the group is joined: what ends in between is told twice rather than not at all.
        with contextlib.suppress(AnyDatabaseError, Unavailable):  # the poller will say so
            self._backlog.add([text for _, text in await read_newest()])

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._person_id is None:
            return
        watching[self._person_id] -= 1
        if not watching[self._person_id]:
            del watching[self._person_id]
        self._person_id = None
        poller.leave()
        await self.channel_layer.group_discard(GROUP, self.channel_name)

    async def _send_backlog(self) -> None:
        # The server raises one when the browser has gone; our own end follows.
        with contextlib.suppress(OSError):
            while True:
                await self.send(await self._backlog.take())

    async def _recheck_access(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                person = await look_up_user(self.scope)
            except (AnyDatabaseError, Unavailable):
                await self._end(TRY_AGAIN_LATER, "The database does not answer.")
                return
            if person is None or person.pk != self._person_id:
                await self._end(NOT_ALLOWED, "You may not watch any more.")
                return
            # The layer forgets members after a day.
            await self.channel_layer.group_add(GROUP, self.channel_name)
            self._backlog.heartbeat()

    async def _end(self, code: int, reason: str) -> None:
        self._tasks[0].cancel()
        with contextlib.suppress(OSError):
            await self.close(code, reason)
