"""A browser's side of the live tail's socket, in front of the real ASGI application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.conf import settings
from django.test import Client

from gateway_site.asgi import application
from gateway_site.console.live_tail.consumer import SOCKET_PATH

HOST = "testserver"
SECONDS = 20.0

Scenario = Callable[[], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> None:
    """Run an async scenario to its end."""
    async_to_sync(scenario)()


async def off_loop(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What the database is needed for while sockets are open."""
    return await database_sync_to_async(work, thread_sensitive=False)(*arguments, **options)


async def until(holds: Callable[[], bool]) -> None:
    """For what another task does."""
    for _ in range(int(SECONDS * 100)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not after {SECONDS} s")


def scope_of(client: Client | None, *, origin: str | None, path: str = SOCKET_PATH) -> dict[str, Any]:
    headers = [(b"host", HOST.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if client is not None:
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()))
    return {
        "type": "websocket",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "subprotocols": [],
        "server": (HOST, 80),
        "client": ("127.0.0.1", 50000),
    }


class Socket:
    """One socket; `close_code` once it was refused or closed."""

    def __init__(
        self, client: Client | None, *, origin: str | None = f"http://{HOST}", path: str = SOCKET_PATH
    ) -> None:
        scope = scope_of(client, origin=origin, path=path)
        self._wire: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]

    async def open(self) -> bool:
        await self._wire.send_input({"type": "websocket.connect"})
        answer: dict[str, Any] = await self._wire.receive_output(SECONDS)
        return bool(answer["type"] == "websocket.accept")

    async def say(self, text: str) -> None:
        await self._wire.send_input({"type": "websocket.receive", "text": text})

    async def message(self) -> dict[str, Any]:
        sent = await self._wire.receive_output(SECONDS)
        assert sent["type"] == "websocket.send", sent
        told: dict[str, Any] = json.loads(sent["text"])
        return told

    async def message_with(self, identifier: Any) -> dict[str, Any]:
        """The row of this request, however many messages come before it."""
        async with asyncio.timeout(SECONDS):
            while True:
                for row in (await self.message())["rows"]:
                    if row["id"] == str(identifier):
                        return dict(row)

    async def close_code(self) -> int:
        """What it is closed with, however many messages come before that."""
        async with asyncio.timeout(SECONDS):
            while (sent := await self._wire.receive_output(SECONDS))["type"] != "websocket.close":
                pass
        return int(sent.get("code", 1000))

    async def leave(self) -> None:
        await self._wire.send_input({"type": "websocket.disconnect", "code": 1001})
        await self._wire.wait(SECONDS)
