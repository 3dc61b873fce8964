"""A server that is told to stop does not wait for those who watch."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import aiohttp
import pytest

from tests.gateway_site.console.clients import owner
from tests.harness.live_server import LiveServer, live_server
from tests.inference.customer import ApiCustomer, question

WATCHERS = 3


async def watch_until_it_stops(running: LiveServer, cookie: str, key: str) -> tuple[list[Any], float]:
    """The last that each watcher was told, and how long that took from the signal on."""
    headers = {"Origin": running.address, "Cookie": f"sessionid={cookie}"}
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(
                f"{running.address}/admin/tail/socket", headers={"Origin": running.address}
            )
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(f"{running.address}/elsewhere", headers=headers)
        sockets = [
            await session.ws_connect(f"{running.address}/admin/tail/socket", headers=headers)
            for _ in range(WATCHERS)
        ]
        bearer = {"Authorization": f"Bearer {key}"}
        url = f"{running.address}/v1/chat/completions"
        async with session.post(url, json=question("echo"), headers=bearer) as answer:
            request_id = answer.headers["X-Request-ID"]
        for socket in sockets:
            async with asyncio.timeout(10):
                while request_id not in (await socket.receive_str()):
                    pass
        told = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            farewells = [await farewell_of(socket) for socket in sockets]
        return farewells, time.monotonic() - told


async def farewell_of(socket: aiohttp.ClientWebSocketResponse) -> Any:
    """
    The code of the close frame, or None if the connection ended without one.

    Not `close_code`: aiohttp answers the frame, and makes it 1006 where the server has hung up by then,
    as it may.
    """
    while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
        pass
    return message.data if message.type is aiohttp.WSMsgType.CLOSE else None


@pytest.mark.one_database
@pytest.mark.parametrize("server", ["serve", "daphne"])
def test_live_tail_sockets_are_closed_at_once_by_a_shutdown(
    customer: ApiCustomer, process_environment: dict[str, str], server: str
) -> None:
    customer.simulate("echo")
    cookie = owner().cookies["sessionid"].value
    with live_server(process_environment, server=server) as running:
        codes, seconds = asyncio.run(watch_until_it_stops(running, cookie, customer.value))

        assert running.process.wait(5) is not None
    assert seconds < 10
    if server == "serve":
        assert codes == [aiohttp.WSCloseCode.SERVICE_RESTART] * WATCHERS
    assert "Traceback" not in "".join(running.output)
