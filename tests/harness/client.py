"""A client that speaks to the ASGI application as a server would, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from asgiref.sync import async_to_sync
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from gateway_site.asgi import application

RawHeader = tuple[str, str]


@dataclass
class Answer:
    status: int
    raw_headers: list[tuple[str, str]]
    body: bytes = b""
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {name.lower(): value for name, value in self.raw_headers}

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.json["error"])


def exchange(
    method: str,
    target: str,
    headers: Iterable[RawHeader] = (),
    chunks: Iterable[bytes] = (b"",),
    application: Any = application,
) -> Answer:
    """Send one request, its body in these chunks, and collect the answer."""
    path, _, query = target.partition("?")
    sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    if not any(name == b"host" for name, _ in sent):
        sent.append((b"host", b"localhost"))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": sent,
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 50000),
    }
    # As Django's own test client does: the end of a request would close the test's transaction.
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    try:
        return async_to_sync(_exchange)(application, scope, list(chunks))
    finally:
        request_started.connect(close_old_connections)
        request_finished.connect(close_old_connections)


async def _exchange(application: Any, scope: dict[str, Any], chunks: list[bytes]) -> Answer:
    waiting = list(chunks) or [b""]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.Event().wait()  # this client never hangs up
        chunk = waiting.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(waiting)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    start = sent[0]
    headers = [(name.decode(), value.decode("latin-1")) for name, value in start["headers"]]
    return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))


@dataclass(frozen=True)
class ApiClient:
    """Requests with a key, and bodies as JSON."""

    key: str | None = None

    def request(
        self, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        sent = list((headers or {}).items())
        if self.key is not None:
            sent.append(("Authorization", f"Bearer {self.key}"))
        if body is None:
            return exchange(method, target, sent)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        names = {name.lower() for name, _ in sent}
        if "content-type" not in names:
            sent.append(("Content-Type", "application/json"))
        sent.append(("Content-Length", str(len(content))))
        return exchange(method, target, sent, [content])

    def get(self, target: str, **options: Any) -> Answer:
        return self.request("GET", target, **options)

    def post(self, target: str, body: Any = None, **options: Any) -> Answer:
        return self.request("POST", target, body, **options)

    def delete(self, target: str, **options: Any) -> Answer:
        return self.request("DELETE", target, **options)
