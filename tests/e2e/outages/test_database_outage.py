"""PostgreSQL freezes, drops packets or refuses connections under a server that has requests to answer."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.e2e.outages import database as outage_world
from tests.e2e.waiting import until
from tests.harness.live_server import LiveServer, live_server
from tests.harness.postgres import PostgresServer
from tests.harness.stalling_proxy import StallingProxy

# The product's own clock is at its default; this is for a machine that has other things to do.
WITHIN_SECONDS = 6.0
AT_ONCE_SECONDS = 2.5
CLIENT_SECONDS = 30


class Answer(NamedTuple):
    status: int
    seconds: float
    retry_after: str | None
    kind: str
    body: bytes


class Outage(NamedTuple):
    server: LiveServer
    database: PostgresServer
    proxy: StallingProxy
    keys: dict[str, str]
    environment: dict[str, str]

    def request(self, path: str, *, key: str = "", body: Any = None) -> Request:
        headers = {"Content-Type": "application/json", "Cookie": f"sessionid={self.keys['session']}"}
        if key:
            headers["Authorization"] = f"Bearer {self.keys[key]}"
        data = None if body is None else json.dumps(body).encode()
        return Request(self.server.address + path, data=data, headers=headers)  # noqa: S310

    def stream_under_way(self) -> Any:
        """A stream of several seconds, of which the beginning was read."""
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": "simulator/paced-120x10", "messages": messages, "stream": True}
        request = self.request("/v1/chat/completions", key="customer", body=body)
        stream = urlopen(request, timeout=CLIENT_SECONDS)  # noqa: S310
        assert stream.readline().startswith(b"data: ")
        return stream

    def send(self, path: str, *, key: str = "", body: Any = None) -> Answer:
        request = self.request(path, key=key, body=body)
        began = time.monotonic()
        try:
            with urlopen(request, timeout=CLIENT_SECONDS) as reply:  # noqa: S310
                status, got, content = reply.status, reply.headers, reply.read()
        except HTTPError as error:
            status, got, content = error.code, error.headers, error.read()
        seconds = time.monotonic() - began
        return Answer(status, seconds, got["Retry-After"], got.get_content_type(), content)

    def send_all(self) -> dict[str, Answer]:
        """One request of each kind, all at once."""
        chat = {"model": "simulator/echo", "messages": [{"role": "user", "content": "hello"}]}
        questions: dict[str, Callable[[], Answer]] = {
            "chat": lambda: self.send("/v1/chat/completions", key="customer", body=chat),
            "stream": lambda: self.send(
                "/v1/chat/completions", key="customer", body={**chat, "stream": True}
            ),
            "responses": lambda: self.send(
                "/v1/responses", key="customer", body={"model": "simulator/echo", "input": "hello"}
            ),
            "count": lambda: self.send("/v1/messages/count_tokens", key="customer", body=chat),
            "model": lambda: self.send("/v1/models/simulator/echo", key="customer"),
            "admin": lambda: self.send("/v1/organization/admin_api_keys", key="admin"),
            "readyz": lambda: self.send("/readyz"),
            "console": lambda: self.send("/admin/"),
        }
        with ThreadPoolExecutor(len(questions)) as threads:
            sent = {name: threads.submit(ask) for name, ask in questions.items()}
            return {name: each.result() for name, each in sent.items()}


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Outage]:
    """A server on a PostgreSQL of its own, whatever database the other tests are on."""
    with PostgresServer() as database:

        def connect() -> socket.socket:
            made = socket.socket(socket.AF_UNIX)
            made.connect(str(database.directory / "socket" / ".s.PGSQL.5432"))
            return made

        direct = {**os.environ, "DATABASE_URL": database.url(), "GATEWAY_DATA_DIR": str(tmp_path)}
        keys = outage_world.run("make", direct)
        with StallingProxy(connect) as proxy:
            through = f"postgres://postgres@127.0.0.1:{proxy.port}/postgres"
            with live_server({**direct, "DATABASE_URL": through}) as server:
                yield Outage(server, database, proxy, keys, direct)


def test_requests_are_refused_in_seconds_while_postgresql_is_frozen_silent_or_gone(outage: Outage) -> None:
    kinds: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "frozen": (outage.database.freeze, outage.database.thaw),
        "silent": (outage.proxy.stall, outage.proxy.forward),
        "refusing": (outage.proxy.refuse, outage.proxy.forward),
    }
    everything_is_answered(outage)
    with outage.stream_under_way() as stream:
        for name, (begin, end) in kinds.items():
            begin()
            try:
                # The probe may still say what it found up to a second before.
                everything_is_refused(outage, name, WITHIN_SECONDS, but="readyz")
                until(lambda: outage.send("/readyz").status == 503)
                everything_is_refused(outage, name, AT_ONCE_SECONDS)
            finally:
                end()
            until(lambda: outage.send("/readyz").status == 200)
            everything_is_answered(outage)
        assert stream.read().endswith(b"data: [DONE]\n\n")
    outage.server.stop()
    counted = outage_world.run("audit", outage.environment)
    assert counted == {"held": 0, "settled": 3 * (len(kinds) + 1) + 1}


def everything_is_refused(outage: Outage, name: str, seconds: float, *, but: str = "") -> None:
    for kind, answer in outage.send_all().items():
        assert answer.seconds < seconds, (name, kind, answer)
        if kind == but:
            continue
        assert answer.status == 503, (name, kind, answer)
        assert answer.retry_after == "1", (name, kind, answer)
        assert answer.kind == ("text/html" if kind == "console" else "application/json"), (name, kind, answer)


def everything_is_answered(outage: Outage) -> None:
    found = {kind: answer.status for kind, answer in outage.send_all().items()}

    assert set(found.values()) == {200}, found
