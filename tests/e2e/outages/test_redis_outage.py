"""Redis freezes, drops packets or refuses connections under a server that counts requests in it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from organization.models import Project
from tests.e2e.waiting import until
from tests.factories import make_admin_key
from tests.harness.live_server import LiveServer, live_server
from tests.harness.stalling_proxy import StallingProxy
from tests.harness.valkey import ValkeyServer
from tests.inference.customer import ApiCustomer

FAILED_KEYS = 3
# Each waits for a tenth of a second at most. This is for a machine that has other things to do, and is still
# less than what the client library waits for by itself.
WITHIN_SECONDS = 2.0


def send(server: LiveServer, path: str, key: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = Request(server.address + path, data=data, headers=headers)  # noqa: S310
    began = time.monotonic()
    try:
        with urlopen(request, timeout=30) as reply:  # noqa: S310
            status, content = reply.status, reply.read()
    except HTTPError as error:
        status, content = error.code, error.read()
    assert time.monotonic() - began < WITHIN_SECONDS, (path, status)
    return status, json.loads(content)


@pytest.mark.one_database
def test_requests_are_served_and_counted_while_redis_is_frozen_silent_or_gone(
    customer: ApiCustomer, project: Project, process_environment: dict[str, str]
) -> None:
    admin = make_admin_key(project.organization).value
    customer.simulate("simulator/echo")
    chat = {"model": "simulator/echo", "messages": [{"role": "user", "content": "hello"}]}
    with ValkeyServer() as redis:
        address = urlsplit(redis.url)
        assert address.hostname
        place = (address.hostname, address.port or 0)
        with StallingProxy(lambda: socket.create_connection(place)) as proxy:
            url = f"redis://127.0.0.1:{proxy.port}/0"
            settings = {
                "REDIS_URL": url,
                "CELERY_BROKER_URL": url,
                "GATEWAY_FAILED_LOGINS_PER_MINUTE": str(FAILED_KEYS),
            }
            with live_server(process_environment, settings=settings) as server:

                def everything_is_served() -> None:
                    assert send(server, "/v1/chat/completions", customer.value, chat)[0] == 200
                    assert send(server, "/v1/messages/count_tokens", customer.value, chat)[0] == 200
                    assert send(server, "/v1/models/simulator/echo", customer.value)[0] == 200
                    assert send(server, "/v1/organization/admin_api_keys", admin)[0] == 200

                outages: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
                    "frozen": (redis.freeze, redis.thaw),
                    "silent": (proxy.stall, proxy.forward),
                    "refusing": (proxy.refuse, proxy.forward),
                }
                everything_is_served()
                for begin, end in outages.values():
                    assert send(server, "/readyz", "")[1]["status"] == "ok"
                    begin()
                    everything_is_served()
                    until(lambda: send(server, "/readyz", "")[1]["status"] == "degraded")
                    assert send(server, "/readyz", "")[1]["dependencies"]["cache"] == "unreachable"
                    end()
                    until(lambda: send(server, "/readyz", "")[1]["status"] == "ok")

                proxy.refuse()
                guesses = [send(server, "/v1/models/x", "gwk_guess")[0] for _ in range(2 * FAILED_KEYS + 2)]

    assert set(guesses) == {401, 429}
    said = [line for line in server.output if "Redis does not answer" in line]
    assert len(said) == 1, "once a minute, however many requests there are"
