"""One whole exchange: `Client.fetch` keeps connections, and bounds time, size and address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from gateway_site.http_client.client import Client, ConnectFailed, FetchedResponse, ResponseTooLarge
from gateway_site.http_client.connection import ResponseCut, ResponseMalformed
from gateway_site.http_client.ssrf_guard import GuardedResolver
from tests.gateway_site.http_client.helpers import FakeResolver
from tests.gateway_site.http_client.raw_server import WHOLE, Peer, RawServer
from tests.harness.live_server import free_port

PATIENCE_SECONDS = 20


def fetched(
    answering: Callable[[Peer], Awaitable[None]], *, seconds: float = PATIENCE_SECONDS, max_bytes: int = 1000
) -> FetchedResponse:
    """The response of a server that answers so."""

    async def run() -> FetchedResponse:
        async with RawServer(answering) as server, Client() as client:
            return await client.fetch(
                f"{server.url}/v1", headers={}, body=b"{}", seconds=seconds, max_bytes=max_bytes
            )

    return asyncio.run(run())


def answering_with(answer: bytes) -> Callable[[Peer], Awaitable[None]]:
    async def answering(peer: Peer) -> None:
        if await peer.next_request():
            await peer.say(answer)

    return answering


async def silent(peer: Peer) -> None:
    await peer.next_request()
    await asyncio.Event().wait()


def test_a_body_is_posted_with_the_headers_given() -> None:
    async def run() -> tuple[FetchedResponse, Peer]:
        async with RawServer() as server, Client() as client:
            response = await client.fetch(
                f"{server.url}/v1/x", headers={"X-Key": "k"}, body=b'{"a": 1}', seconds=5, max_bytes=100
            )
            return response, server.peers[0]

    response, peer = asyncio.run(run())

    assert response == (200, b"{}")
    assert peer.head.startswith(b"POST /v1/x HTTP/1.1\r\n")
    assert b"\r\nX-Key: k\r\n" in peer.head
    assert peer.body == b'{"a": 1}'


def test_without_a_body_it_is_a_get_that_announces_none() -> None:
    heads = []

    async def answering(peer: Peer) -> None:
        heads.append(await peer.reader.readuntil(b"\r\n\r\n"))
        await peer.say(WHOLE)

    async def run() -> FetchedResponse:
        async with RawServer(answering) as server, Client() as client:
            return await client.fetch(f"{server.url}/models?limit=1", headers={}, seconds=5, max_bytes=100)

    assert asyncio.run(run()) == (200, b"{}")
    assert heads[0].startswith(b"GET /models?limit=1 HTTP/1.1\r\n")
    assert b"content-length" not in heads[0].lower()


def test_a_connection_is_kept_alive_between_fetches() -> None:
    async def run() -> list[int]:
        async with RawServer() as server, Client() as client:
            for _ in range(3):
                await client.fetch(server.url, headers={}, body=b"{}", seconds=5, max_bytes=100)
            return server.requests

    assert asyncio.run(run()) == [3]


def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    async def answering(peer: Peer) -> None:
        if await peer.next_request():
            await peer.say(WHOLE)

    async def run() -> list[int]:
        async with RawServer(answering) as server, Client() as client:
            for _ in range(2):
                await client.fetch(server.url, headers={}, body=b"{}", seconds=5, max_bytes=100)
                await server.left.wait()
                # The server's end reached this process by now, but the loop has not run since.
                time.sleep(0.05)  # noqa: ASYNC251
            return server.requests

    assert asyncio.run(run()) == [1, 1]


@pytest.mark.parametrize("status", [204, 301, 404, 500])
def test_another_status_than_200_is_returned_without_its_body(status: int) -> None:
    answer = b"HTTP/1.1 %d No\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n" % status

    assert fetched(answering_with(answer)) == (status, b"")


def test_an_endless_error_is_not_read() -> None:
    endless = b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n" + b"3e8\r\n" + b"x" * 1000 + b"\r\n"

    assert fetched(answering_with(endless * 2), max_bytes=10) == (500, b"")


def test_the_deadline_ends_a_silent_exchange() -> None:
    started = time.monotonic()

    with pytest.raises(TimeoutError):
        fetched(silent, seconds=0.1)

    assert time.monotonic() - started < PATIENCE_SECONDS / 2


def test_the_deadline_ends_an_exchange_that_drips() -> None:
    async def dripping(peer: Peer) -> None:
        await peer.next_request()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        for _ in range(900):
            await peer.say(b"x")
            await asyncio.sleep(0.01)

    with pytest.raises(TimeoutError):
        fetched(dripping, seconds=0.3)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001, ResponseTooLarge),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", ResponseCut),
        (b"", ResponseCut),
        (b"SSH-2.0-OpenSSH\r\n", ResponseMalformed),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error(answer: bytes, failure: type[OSError]) -> None:
    with pytest.raises(failure):
        fetched(answering_with(answer))


def test_a_refused_connection_says_why() -> None:
    async def run() -> None:
        async with Client() as client:
            await client.fetch(f"http://127.0.0.1:{free_port()}", headers={}, seconds=5, max_bytes=100)

    with pytest.raises(ConnectFailed) as caught:
        asyncio.run(run())

    assert caught.value.strerror
    assert caught.value.__context__ is None


def test_a_name_that_resolves_to_a_metadata_address_is_not_connected_to() -> None:
    async def run() -> None:
        resolver = GuardedResolver(FakeResolver("169.254.169.254"))
        async with Client(resolver=resolver) as client:
            await client.fetch("http://judge.example/v1", headers={}, seconds=5, max_bytes=100)

    with pytest.raises(ConnectFailed):
        asyncio.run(run())


def test_a_cancelled_fetch_closes_its_connection() -> None:
    async def run() -> None:
        arrived = asyncio.Event()

        async def until_the_client_leaves(peer: Peer) -> None:
            while await peer.next_request():
                arrived.set()

        async with RawServer(until_the_client_leaves) as server, Client() as client:
            fetching = asyncio.ensure_future(
                client.fetch(server.url, headers={}, body=b"{}", seconds=PATIENCE_SECONDS, max_bytes=100)
            )
            await arrived.wait()
            fetching.cancel()
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                await server.left.wait()

    asyncio.run(run())
