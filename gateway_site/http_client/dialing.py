"""
Opening a connection: from a name to checked addresses, and to the first of them that answers.

The addresses that the guarded resolver let pass are the ones connected to; there is no second look-up.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import NamedTuple

from gateway_site.http_client.connection import Origin, UpstreamConnection
from gateway_site.http_client.ssrf_guard import Resolver, is_refused

NAME_SECONDS = 10


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


# Made on import: it reads the certificates of the system from disk.
TLS = _tls()


class _Name(NamedTuple):
    lookup: asyncio.Task[list[str]]
    expires_at: float


class Dialer:
    """Opens connections for one event loop. The addresses of a name are cached for a few seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resolver: Resolver) -> None:
        self._loop = loop
        self._resolver = resolver
        self._names: dict[tuple[str, int], _Name] = {}

    async def dial(self, origin: Origin, seconds: float) -> UpstreamConnection:
        """Open a connection, with TLS for a secure origin, within this many seconds; else OSError."""
        ends_at = self._loop.time() + seconds
        async with asyncio.timeout_at(ends_at):
            addresses = await self._addresses(origin)
        failure: OSError | None = None
        for tried, address in enumerate(addresses):
            # A share of the time for each: one that swallows packets must not use up what the next needs.
            share = (ends_at - self._loop.time()) / (len(addresses) - tried)
            try:
                async with asyncio.timeout(share):
                    return await self._connected(origin, address)
            except OSError as exc:
                failure = exc
        raise failure or OSError("the name has no address")

    async def _connected(self, origin: Origin, address: str) -> UpstreamConnection:
        _, connection = await self._loop.create_connection(
            lambda: UpstreamConnection(self._loop, origin),
            address,
            origin.port,
            flags=socket.AI_NUMERICHOST,
            ssl=TLS if origin.is_secure else None,
            server_hostname=origin.host if origin.is_secure else None,
        )
        return connection

    async def _addresses(self, origin: Origin) -> list[str]:
        try:
            literal = ipaddress.ip_address(origin.host)
        except ValueError:
            return await self._resolved(origin.host, origin.port)
        if is_refused(literal):
            raise OSError("the address is refused")
        return [origin.host]

    async def _resolved(self, host: str, port: int) -> list[str]:
        name = self._names.get((host, port))
        if name is None or name.expires_at <= self._loop.time():
            name = self._look_up(host, port)
        # Many may wait for one answer; that one of them leaves must not take it from the others.
        addresses = await asyncio.shield(name.lookup)
        ordered = list(addresses)
        # The next one begins with another address, as whoever published several would have it.
        addresses.append(addresses.pop(0))
        return ordered

    def _look_up(self, host: str, port: int) -> _Name:
        now = self._loop.time()
        self._names = {key: name for key, name in self._names.items() if name.expires_at > now}
        lookup = self._loop.create_task(self._ask(host, port))
        name = self._names[host, port] = _Name(lookup, now + NAME_SECONDS)

        def forget_failure(done: asyncio.Task[list[str]]) -> None:
            if (done.cancelled() or done.exception()) and self._names.get((host, port)) is name:
                del self._names[host, port]

        lookup.add_done_callback(forget_failure)
        return name

    async def _ask(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolver.resolve(host, port)
        except UnicodeError:
            raise OSError("the host is not a name") from None
        if not addresses:
            raise OSError("the name has no address")
        return addresses
