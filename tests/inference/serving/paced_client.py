"""A client that reads, stops reading and disconnects when a test says so, on the bare application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from gateway_site.asgi import application
from inference.backends import registry
from inference.dialects.chat import dialect
from tests.inference.customer import HELLO, ApiCustomer, question, records

Value = TypeVar("Value")


class Caller:
    """One request as its server sees it: of chat completions, or of responses."""

    def __init__(self, customer: ApiCustomer, model: str, *, path: str = dialect.PATH, **fields: Any) -> None:
        asked = (
            question(model, **fields) if path == dialect.PATH else {"model": model, "input": HELLO, **fields}
        )
        self.body = json.dumps(asked).encode()
        self.messages: list[dict[str, Any]] = []
        self.has_disconnected = asyncio.Event()
        self.is_reading = asyncio.Event()
        self.is_reading.set()
        self._news = asyncio.Condition()
        self._unread: list[dict[str, Any]] = [{"type": "http.request", "body": self.body}]
        headers = {
            "host": "localhost",
            "authorization": f"Bearer {customer.value}",
            "content-type": "application/json",
            "content-length": str(len(self.body)),
        }
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 50000),
        }
        self.task = asyncio.create_task(application(self._scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._unread:
            return self._unread.pop()
        await self.has_disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self.is_reading.wait()
        async with self._news:
            self.messages.append(message)
            self._news.notify_all()

    async def until(self, what: Callable[[Caller], bool]) -> None:
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: what(self))

    async def until_records(self, count: int) -> None:
        await self.until(lambda caller: caller.content.count(b"\n\n") >= count)

    def disconnect(self) -> None:
        self.has_disconnected.set()

    async def ended(self, seconds: float = 10) -> None:
        """Until the application has returned. A timeout around it would cancel it, and end it that way."""
        done, _ = await asyncio.wait({self.task}, timeout=seconds)
        assert done, "the application goes on"
        self.task.result()

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def content(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def records(self) -> list[Any]:
        return records(self.content)


def run(story: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
    """Run a story in a loop of its own, and close what it opened."""

    async def closing() -> Value:
        try:
            return await story()
        finally:
            await registry.client.close()

    return asyncio.run(closing())
