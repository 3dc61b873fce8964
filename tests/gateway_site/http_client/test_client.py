"""The connection to a backend: what is sent, when it is dispatched, when it is closed, and what is kept."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import aclosing
from typing import Any

import pytest

from gateway_site.api.errors import BackendUnreachable, DeadlineExceeded, Unavailable
from gateway_site.http_client.client import Client, Timeouts
from gateway_site.http_client.ssrf_guard import GuardedResolver, parse_base_url
from inference.backends.base import nothing_to_mark
from inference.backends.openai_chat.backend import OpenAIBackend
from inference.events import TextDelta
from tests.gateway_site.http_client.helpers import FakeResolver
from tests.harness.live_server import free_port
from tests.inference.backends.harness import (
    CREDENTIAL,
    HASTY,
    MAKERS,
    Collected,
    anthropic_backend,
    collect,
    collect_into,
    hello,
    openai_backend,
)
from tests.inference.backends.upstreams.faulty.server import (
    FaultyUpstream,
    upstream_in_thread,
    wait_until_closed,
)

BOTH = pytest.mark.parametrize("kind", ["openai", "anthropic"])


def collect_at(url: str, timeouts: Timeouts = HASTY, resolver: GuardedResolver | None = None) -> Collected:
    async def run() -> Collected:
        collected = Collected()
        async with Client(timeouts, resolver) as client:
            backend = OpenAIBackend(client, name="nowhere", base_url=parse_base_url(url))
            await collect_into(collected, backend, "ok", hello())
        return collected

    return asyncio.run(run())


@BOTH
def test_it_works(kind: Any) -> None:
    collected = collect(kind, "ok")

    assert collected.text == "Hello wörld, this is"
    assert collected.reasons == ["stop"]
    assert collected.usage is not None
    assert (collected.usage.prompt_tokens, collected.usage.completion_tokens) == (11, 5)
    assert collected.error is None
    assert collected.dispatches == 1


# --- Never sent -------------------------------------------------------------------------------------


def assert_never_dispatched(collected: Collected) -> None:
    assert type(collected.error) is BackendUnreachable
    assert collected.error.is_free
    assert collected.dispatches == 0


def test_a_refused_connection_was_never_dispatched() -> None:
    assert_never_dispatched(collect_at(f"http://127.0.0.1:{free_port()}/v1"))


def test_an_unknown_name_was_never_dispatched() -> None:
    assert_never_dispatched(collect_at("http://no-such-host.invalid/v1"))


@pytest.mark.slow
def test_a_failed_handshake_was_never_dispatched() -> None:
    with upstream_in_thread() as upstream:
        assert_never_dispatched(collect_at(f"https://127.0.0.1:{upstream.port}/v1"))


def test_a_connection_that_does_not_come_up_in_time_was_never_dispatched() -> None:
    # A full backlog drops further attempts without an answer.
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())

        collected = collect_at(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", Timeouts(connect=0.3))

    assert_never_dispatched(collected)


def test_a_name_that_means_a_refused_address_by_now_was_never_dispatched() -> None:
    resolver = GuardedResolver(FakeResolver("169.254.169.254"))

    assert_never_dispatched(collect_at("http://rebinding.example/v1", resolver=resolver))


def test_a_dispatch_that_is_refused_sends_nothing() -> None:
    async def refuse() -> None:
        raise Unavailable

    async def run() -> FaultyUpstream:
        async with FaultyUpstream() as upstream, Client(HASTY) as client:
            backend = openai_backend(client, upstream)
            with pytest.raises(Unavailable):
                await anext(backend.generate(hello(), model="ok", dispatch=refuse))
            return upstream

    upstream = asyncio.run(run())

    assert upstream.connections == 1
    assert upstream.exchanges == []


def test_a_connection_lost_while_the_dispatch_is_marked_is_free() -> None:
    async def run() -> Collected:
        collected = Collected()
        async with FaultyUpstream() as upstream, Client(HASTY) as client:
            backend = openai_backend(client, upstream)

            async def hang_up_meanwhile() -> None:
                collected.dispatches += 1
                await upstream.__aexit__()
                await asyncio.sleep(0.05)

            try:
                await anext(backend.generate(hello(), model="ok", dispatch=hang_up_meanwhile))
            except BackendUnreachable as exc:
                collected.error = exc
        return collected

    collected = asyncio.run(run())

    assert collected.error is not None
    assert collected.error.is_free


# --- Closed in time ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("way", ["aclose", "cancel"])
@pytest.mark.parametrize("model", ["drip", "hang_midstream", "endless"])
def test_a_disconnect_midstream_closes_upstream_within_a_second(kind: Any, way: Any, model: Any) -> None:
    async def run() -> float:
        async with FaultyUpstream() as upstream, Client() as client:
            backend = MAKERS[kind](client, upstream)
            has_spoken = asyncio.Event()

            async def read() -> None:
                events = backend.generate(hello(), model=model, dispatch=nothing_to_mark)
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, TextDelta):
                            has_spoken.set()
                            if way == "aclose":
                                return

            task = asyncio.create_task(read())
            await has_spoken.wait()
            if way == "cancel":
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return await wait_until_closed(upstream.last)

    assert asyncio.run(run()) < 1


@BOTH
@pytest.mark.parametrize("model", ["hang_before_headers", "hang_after_headers"])
def test_cancelling_before_the_first_token_closes_upstream(kind: Any, model: Any) -> None:
    async def run() -> float:
        async with FaultyUpstream() as upstream, Client() as client:
            events = MAKERS[kind](client, upstream).generate(hello(), model=model, dispatch=nothing_to_mark)
            task = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.2)
            assert upstream.exchanges
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return await wait_until_closed(upstream.last)

    assert asyncio.run(run()) < 1


@pytest.mark.parametrize("model", ["hang_midstream", "wrong_index", "error_midstream?tokens=3", "drip"])
def test_a_fault_closes_upstream_too(model: Any) -> None:
    async def run() -> float:
        async with FaultyUpstream() as upstream, Client(Timeouts(between_bytes=0.2, total=1)) as client:
            await collect_into(Collected(), openai_backend(client, upstream), model, hello())
            if upstream.last.is_complete:
                return 0
            return await wait_until_closed(upstream.last)

    assert asyncio.run(run()) < 1


@pytest.mark.slow
def test_backpressure_of_a_paused_reader_reaches_upstream() -> None:
    async def run() -> int:
        async with FaultyUpstream() as upstream, Client() as client:
            events = openai_backend(client, upstream).generate(
                hello(), model="endless", dispatch=nothing_to_mark
            )
            async with aclosing(events), asyncio.timeout(20):
                await anext(events)
                before = -1
                while upstream.last.bytes_emitted != before:
                    before = upstream.last.bytes_emitted
                    await asyncio.sleep(0.5)
                return before

    # What the kernel's buffers and ours hold, and no more.
    assert asyncio.run(run()) < 16_000_000


def test_a_silence_after_the_headers_has_its_own_limit() -> None:
    started = time.monotonic()

    collected = collect("openai", "hang_after_headers", timeouts=Timeouts(first_byte=30, between_bytes=0.2))

    assert isinstance(collected.error, DeadlineExceeded)
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_a_pause_of_the_reader_is_not_a_silence_of_upstream() -> None:
    async def run() -> str:
        async with FaultyUpstream() as upstream, Client(Timeouts(between_bytes=0.2)) as client:
            events = openai_backend(client, upstream).generate(
                hello(), model="ok?tokens=50&delay=0.002", dispatch=nothing_to_mark
            )
            text = ""
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, TextDelta):
                        text += event.text
                        if len(text) < 12:
                            await asyncio.sleep(0.3)
            return text

    assert len(asyncio.run(run())) > 100


# --- What is kept, what is sent ---------------------------------------------------------------------


def _connections_of_seven(kind: str, **options: Any) -> int:
    async def run() -> int:
        async with FaultyUpstream() as upstream, Client(HASTY) as client:
            backend = MAKERS[kind](client, upstream, **options)
            for model in ["ok", "ok?late_end=0.02", "400", "ok_tools", "500_html", "json", "ok"]:
                await collect_into(Collected(), backend, model, hello())
            assert len(upstream.exchanges) == 7
            return upstream.connections

    return asyncio.run(run())


@pytest.mark.parametrize(("kind", "options"), [("openai", {"server": "vllm"}), ("anthropic", {})])
def test_connections_are_used_again(kind: Any, options: Any) -> None:
    assert _connections_of_seven(kind, **options) == 1


def test_a_connection_that_we_said_to_close_is_not_used_again_whatever_the_server_does() -> None:
    # This upstream does not look at `Connection: close`.
    assert _connections_of_seven("openai", server="other") == 7


def test_no_cookie_no_environment_and_no_other_header_goes_out(monkeypatch: Any) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    async def run() -> list[dict[str, str]]:
        async with FaultyUpstream() as upstream, Client(HASTY) as client:
            for _ in range(2):  # the first answer sets a cookie
                await collect_into(Collected(), openai_backend(client, upstream), "ok", hello())
                await collect_into(Collected(), anthropic_backend(client, upstream), "ok", hello())
            return [exchange.headers for exchange in upstream.exchanges]

    common = {"host", "accept", "accept-encoding", "user-agent", "content-type", "content-length"}
    sent = asyncio.run(run())
    assert len(sent) == 4
    for headers in sent:
        own = headers.keys() - common
        assert own in ({"authorization", "connection"}, {"x-api-key", "anthropic-version"})
        assert CREDENTIAL in headers.get("authorization", headers.get("x-api-key", ""))
        assert headers["accept-encoding"] == "identity"


def test_the_credential_is_in_no_representation() -> None:
    async def run() -> list[object]:
        async with FaultyUpstream() as upstream, Client() as client:
            return [make(client, upstream) for make in MAKERS.values()]

    for backend in asyncio.run(run()):
        assert CREDENTIAL not in repr(backend)


@pytest.mark.parametrize("value", ["key with spaces", "a\r\nX-Evil: 1", "schlüssel", "a\tb"])
def test_a_credential_that_cannot_be_a_header_is_refused_without_being_repeated(value: Any) -> None:
    with pytest.raises(ValueError, match="printable") as refusal:
        OpenAIBackend(Client(), name="x", base_url=parse_base_url("http://h"), api_key=value)

    assert value not in str(refusal.value)


@pytest.mark.slow
def test_many_streams_at_once_on_one_client() -> None:
    async def run() -> list[str]:
        async with FaultyUpstream() as upstream, Client() as client:
            backend = openai_backend(client, upstream)
            collected = [Collected() for _ in range(100)]
            await asyncio.gather(
                *(collect_into(one, backend, "ok?tokens=20&delay=0.001", hello()) for one in collected)
            )
            return [one.text for one in collected]

    texts = asyncio.run(run())

    assert len(set(texts)) == 1
    assert texts[0].startswith("Hello wörld")
