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
from gateway_site.console.live_tail.access import PERMISSION, person_behind
from gateway_site.console.live_tail.poller import GROUP, poller, read_newest
from gateway_site.database.off_loop import off_loop

SOCKET_PATH = "/admin/tail/socket"
# How often a socket's person is looked up again, and the page told that the line is up.
BEAT_SECONDS = 15.0
# What waits for a browser that does not keep up.
MOST_WAITING = 200
SOCKETS_OF_A_PERSON, SOCKETS_OF_A_PROCESS = 5, 50

# Close codes that the page knows; RFC 6455 leaves 4000 to 4999 to applications.
SPOKE, TRY_AGAIN_LATER, NOT_ALLOWED, TOO_MANY = 1008, 1013, 4403, 4429


@require_safe
@permission_required(PERMISSION, raise_exception=True)
def page(request: HttpRequest) -> HttpResponse:
    """An empty table; the socket fills it."""
    context = {
        **admin.site.each_context(request),
        "title": "Live tail",
        "socket_path": SOCKET_PATH,
        "receipt_path": reverse("admin:inference_activity_change", args=[uuid.UUID(int=0)]),
    }
    return TemplateResponse(request, "admin/live_tail.html", context)


async def sockets(scope: Any, receive: Any, send: Any) -> None:
    """Every WebSocket. There is one; what asks for another is refused, as a page would be with 403."""
    if scope["path"] == SOCKET_PATH:
        await TailConsumer()(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.close"})


class Backlog:
    """What waits to be sent to one browser. When that is too much, the oldest goes and is counted."""

    def __init__(self) -> None:
        self._rows: deque[str] = deque()
        self._skipped = 0
        self._has_gap = self._has_trouble = False
        self._is_due = asyncio.Event()

    def add(self, rows: Sequence[str], *, has_gap: bool = False, has_trouble: bool = False) -> None:
        """The newest first, as they were read."""
        self._rows.extend(reversed(rows))
        while len(self._rows) > MOST_WAITING:
            self._rows.popleft()
            self._skipped += 1
        self._has_gap |= has_gap
        self._has_trouble = has_trouble
        self.beat()

    def beat(self) -> None:
        """Send something, if only that there is nothing."""
        self._is_due.set()

    async def take(self) -> str:
        """What is due, as one message; waits until something is."""
        await self._is_due.wait()
        self._is_due.clear()
        notes = {"skipped": self._skipped, "has_gap": self._has_gap, "has_trouble": self._has_trouble}
        message = f'{{"rows": [{",".join(self._rows)}], "notes": {json.dumps(notes)}}}'
        self._rows.clear()
        self._skipped, self._has_gap = 0, False
        return message


# The open sockets of this process, by the person's id.
watching: Counter[Any] = Counter()
_look_up = off_loop(person_behind)


class TailConsumer(AsyncWebsocketConsumer):
    """One socket. It only ever sends; a browser that cannot keep up delays nobody but itself."""

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
            person = await _look_up(self.scope)
        except (AnyDatabaseError, Unavailable):
            person = None
        if person is None:
            await self.close()
            return
        await self.accept()
        if watching[person.pk] >= SOCKETS_OF_A_PERSON or watching.total() >= SOCKETS_OF_A_PROCESS:
            await self.close(TOO_MANY, "Too many live tails are open.")
            return
        await self._join(person)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await self.close(SPOKE, "Nothing is expected from the page.")

    async def tail_news(self, message: dict[str, Any]) -> None:
        """From the poller, by the channel layer."""
        self._backlog.add(message["rows"], has_gap=message["has_gap"], has_trouble=message["has_trouble"])

    async def _join(self, person: Any) -> None:
        self._person_id = person.pk
        watching[person.pk] += 1
        await self.channel_layer.group_add(GROUP, self.channel_name)
        poller.join()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pass_on()), loop.create_task(self._look_again())]
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

    async def _pass_on(self) -> None:
        # The server raises one when the browser has gone; our own end follows.
        with contextlib.suppress(OSError):
            while True:
                await self.send(await self._backlog.take())

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                person = await _look_up(self.scope)
            except (AnyDatabaseError, Unavailable):
                await self._end(TRY_AGAIN_LATER, "The database does not answer.")
                return
            if person is None or person.pk != self._person_id:
                await self._end(NOT_ALLOWED, "You may not watch any more.")
                return
            # The layer forgets members after a day.
            await self.channel_layer.group_add(GROUP, self.channel_name)
            self._backlog.beat()

    async def _end(self, code: int, reason: str) -> None:
        self._tasks[0].cancel()
        with contextlib.suppress(OSError):
            await self.close(code, reason)
