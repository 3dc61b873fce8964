"""Which connection a request goes out on: kept ones, new ones, and never one that may be dead."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from gateway_site.api.errors import BackendFailed, ProviderRejected
from gateway_site.http_client import client as http
from gateway_site.http_client.client import Client
from inference.backends.base import nothing_to_mark
from tests.gateway_site.http_client.helpers import HASTY, STREAM, ask, request_to
from tests.gateway_site.http_client.raw_server import WHOLE, Peer, RawServer, always_whole


def test_it_works(run: Any) -> None:
    async def main() -> list[int]:
        async with RawServer() as server, Client(HASTY) as client:
            for _ in range(5):
                assert await ask(client, server.url) == b"{}"
            return server.requests

    assert run(main) == [5]


def test_the_connection_idle_for_the_shortest_time_is_taken_first(run: Any) -> None:
    async def main() -> list[int]:
        async with RawServer() as server, Client(HASTY) as client:
            await asyncio.gather(*(ask(client, server.url) for _ in range(3)))
            for _ in range(4):
                await ask(client, server.url)
            return sorted(server.requests)

    assert run(main) == [1, 1, 5]


def test_each_origin_has_its_own_idle_connections(run: Any) -> None:
    async def main() -> tuple[list[int], list[int]]:
        async with RawServer() as one, RawServer() as other, Client(HASTY) as client:
            for server in (one, other, one):
                await ask(client, server.url)
            return one.requests, other.requests

    assert run(main) == ([2], [1])


def test_our_own_connection_close_is_obeyed(run: Any) -> None:
    async def main() -> list[int]:
        async with RawServer() as server, Client(HASTY) as client:
            for _ in range(3):
                await ask(client, server.url, Connection="close")
            return server.requests

    assert run(main) == [1, 1, 1]


def test_a_connection_idle_past_its_keep_alive_is_closed_and_not_used(run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE_SECONDS", 0.1)

    async def main() -> list[int]:
        async with RawServer() as server, Client(HASTY) as client:
            await ask(client, server.url)
            await asyncio.wait_for(server.left.wait(), 2)
            await ask(client, server.url)
            return server.requests

    assert run(main) == [1, 1]


# --- A server that closes ---------------------------------------------------------------------------


async def answer_one(peer: Peer) -> None:
    await peer.next_request()
    await peer.say(WHOLE)


def test_an_idle_connection_that_the_server_closed_is_not_used(run: Any) -> None:
    async def main() -> list[int]:
        standing = []

        async def note() -> None:
            await asyncio.sleep(0.05)
            standing.append(len(server.peers))

        async with RawServer(answer_one) as server, Client(HASTY) as client:
            for _ in range(3):
                await ask(client, server.url, note)
                await asyncio.sleep(0.05)
            assert standing == [1, 2, 3]  # the new one stands before the dispatch is marked
            return server.requests

    assert run(main) == [1, 1, 1]


def test_a_connection_that_the_server_closes_while_the_dispatch_is_marked_is_replaced(run: Any) -> None:
    async def main() -> tuple[list[int], int]:
        dispatches = 0

        async with RawServer() as server, Client(HASTY) as client:
            await ask(client, server.url)

            async def close_meanwhile() -> None:
                nonlocal dispatches
                dispatches += 1
                server.peers[0].writer.close()
                await asyncio.sleep(0.05)

            assert await ask(client, server.url, close_meanwhile) == b"{}"
            return server.requests, dispatches

    assert run(main) == ([1, 1], 1)


def test_a_request_that_was_lost_on_a_kept_connection_is_never_sent_again(run: Any) -> None:
    async def one_answer_then_none(peer: Peer) -> None:
        await answer_one(peer)
        await peer.next_request()

    async def main() -> list[int]:
        async with RawServer(one_answer_then_none) as server, Client(HASTY) as client:
            await ask(client, server.url)
            with pytest.raises(BackendFailed) as failure:
                await ask(client, server.url)
            assert not failure.value.is_free
            return server.requests

    assert run(main) == [2]


@pytest.mark.slow
@pytest.mark.parametrize("said", [WHOLE, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
def test_an_idle_connection_on_which_bytes_arrived_is_not_used(run: Any, said: Any) -> None:
    async def speak_up(peer: Peer) -> None:
        await answer_one(peer)
        await asyncio.sleep(0.02)
        await peer.say(said)
        await always_whole(peer)

    async def main() -> list[int]:
        async with RawServer(speak_up) as server, Client(HASTY) as client:
            await ask(client, server.url)
            await asyncio.sleep(0.1)
            await ask(client, server.url)
            return server.requests

    assert run(main) == [1, 1]


def test_a_refusal_before_the_request_is_sent_is_read(run: Any) -> None:
    async def refuse_at_once(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(0.3)

    async def main() -> int:
        async with RawServer(refuse_at_once) as server, Client(HASTY) as client:
            for _ in range(2):
                with pytest.raises(ProviderRejected):
                    await ask(client, server.url, body=b"x" * 30_000_000)
            return len(server.peers)

    assert run(main) == 2


def test_an_answer_that_is_encoded_though_nobody_asked_is_a_fault(run: Any) -> None:
    async def encoded(peer: Peer) -> None:
        await peer.next_request()
        await peer.say(WHOLE.replace(b"Content-Type", b"Content-Encoding: gzip\r\nContent-Type"))

    async def main() -> bool:
        async with RawServer(encoded) as server, Client(HASTY) as client:
            with pytest.raises(BackendFailed) as failure:
                await ask(client, server.url)
            return failure.value.is_free

    assert run(main) is False


# --- Leaving ----------------------------------------------------------------------------------------


async def fall_silent(peer: Peer) -> None:
    await peer.next_request()
    await peer.reader.read()


async def say_half(peer: Peer) -> None:
    await peer.next_request()
    await peer.say(STREAM)
    await peer.reader.read()


async def _forever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answering", "dispatch", "sent"),
    [(fall_silent, _forever, 0), (fall_silent, nothing_to_mark, 1), (say_half, nothing_to_mark, 1)],
    ids=["dispatch", "head", "body"],
)
def test_cancelling_a_request_closes_its_connection(
    run: Any, answering: Any, dispatch: Any, sent: Any
) -> None:
    async def main() -> list[int]:
        async with RawServer(answering) as server, Client(HASTY) as client:
            asking = asyncio.ensure_future(ask(client, server.url, dispatch))
            await asyncio.sleep(0.1)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert asking.cancelled()
            await asyncio.wait_for(server.left.wait(), 1)
            return server.requests

    assert run(main) == [sent]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_cancelled_while_connecting_leaves_no_connection(run: Any, scheme: Any) -> None:
    async def main() -> None:
        # A full backlog for the one; nobody who would shake hands for the other.
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0 if scheme == "http" else 5)
            fillers = [socket.socket() for _ in range(2 if scheme == "http" else 0)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            async with Client() as client:
                url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
                asking = asyncio.ensure_future(ask(client, url))
                await asyncio.sleep(0.1)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                assert asking.cancelled()
            for filler in fillers:
                filler.close()

    run(main)


def test_an_answer_that_is_closed_twice_gives_its_connection_back_once(run: Any) -> None:
    async def main() -> list[int]:
        async with RawServer() as server, Client(HASTY) as client:
            answer = await client.post(request_to(server.url), nothing_to_mark)
            await answer.whole()
            answer.close()
            answer.close()
            await asyncio.gather(*(ask(client, server.url) for _ in range(2)))
            return sorted(server.requests)

    assert run(main) == [1, 2]


def test_a_closed_client_keeps_no_connection(run: Any) -> None:
    async def main() -> None:
        async with RawServer() as server:
            async with Client(HASTY) as client:
                await ask(client, server.url)
                late = await client.post(request_to(server.url), nothing_to_mark)
                await client.close()
                await late.whole()
                late.close()
            await asyncio.wait_for(server.left.wait(), 1)

    run(main)
