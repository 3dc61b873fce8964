"""From a name to a connection: looked up once, every address tried, and none that is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway_site.api.errors import BackendUnreachable
from gateway_site.http_client import dialing
from gateway_site.http_client.client import Client
from gateway_site.http_client.ssrf_guard import GuardedResolver
from tests.gateway_site.http_client.helpers import HASTY, FakeResolver, ask
from tests.gateway_site.http_client.raw_server import RawServer


@pytest.mark.slow
def test_a_name_is_looked_up_once_within_its_cache_time(run: Any, monkeypatch: Any) -> None:
    names = FakeResolver("127.0.0.1")

    async def main() -> None:
        async with RawServer() as server, Client(HASTY, GuardedResolver(names)) as client:
            url = f"http://backend.example:{server.port}"
            await asyncio.gather(*(ask(client, url, Connection="close") for _ in range(10)))
            assert names.look_ups == 1
            monkeypatch.setattr(dialing, "NAME_SECONDS", 0)
            await client.close()
            for _ in range(2):
                await ask(client, url, Connection="close")
            assert names.look_ups == 3

    run(main)


def test_a_cancelled_look_up_goes_on_for_the_others(run: Any) -> None:
    async def main() -> None:
        async with RawServer() as server, Client(HASTY, GuardedResolver(FakeResolver("127.0.0.1"))) as client:
            url = f"http://backend.example:{server.port}"
            leaving, staying = (asyncio.ensure_future(ask(client, url)) for _ in range(2))
            await asyncio.sleep(0.005)
            leaving.cancel()
            assert await staying == b"{}"
            assert leaving.cancelled()

    run(main)


def test_each_address_of_a_name_is_tried(run: Any) -> None:
    async def main() -> None:
        # Nobody listens on the first two.
        names = FakeResolver("127.0.0.2", "::1", "127.0.0.1")
        async with RawServer() as server, Client(HASTY, GuardedResolver(names)) as client:
            for _ in range(4):  # each begins with another address
                assert await ask(client, f"http://backend.example:{server.port}", Connection="close") == b"{}"

    run(main)


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "backend.example", "[::ffff:169.254.169.254]"]
)
def test_a_refused_address_is_not_connected(run: Any, host: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(dialing.Dialer, "_connected", None)

    async def main() -> None:
        async with Client(HASTY, GuardedResolver(FakeResolver("127.0.0.1", "169.254.169.254"))) as client:
            with pytest.raises(BackendUnreachable):
                await ask(client, f"http://{host}:80")

    run(main)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "nobody.example"])
def test_a_name_that_means_nothing_is_unreachable(run: Any, host: Any) -> None:
    async def main() -> None:
        resolver = None if host.startswith("a") else GuardedResolver(FakeResolver())
        async with Client(HASTY, resolver) as client:
            with pytest.raises(BackendUnreachable):
                await ask(client, f"http://{host}:80")

    run(main)


def test_ipv6(run: Any) -> None:
    async def main() -> None:
        async with RawServer(host="::1") as server, Client(HASTY) as client:
            assert await ask(client, server.url) == b"{}"

    run(main)
