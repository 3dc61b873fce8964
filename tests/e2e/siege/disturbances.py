"""Failures of the gateway's own parts during the siege: Redis and the database freeze, a worker is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.benchmarks.gateway.process import family, memory_mib
from tests.harness.postgres import PostgresServer
from tests.harness.valkey import ValkeyServer

# How long after its return the database may still be missed: connections are made anew.
RECOVERY_SECONDS = 3.0


@dataclass
class Span:
    """From when to when, by the monotonic clock."""

    start: float = 0.0
    end: float = 0.0

    def overlaps(self, start: float, end: float) -> bool:
        return self.start <= end and start <= self.end


@dataclass
class Disturbances:
    """Each at its own share of the siege, and when it really happened."""

    seconds: float
    postgres: PostgresServer
    valkey: ValkeyServer
    server_process_id: int
    spans: dict[str, Span] = field(default_factory=dict)

    async def happen(self) -> None:
        began = time.monotonic()
        await self._until(began, 0.25)
        with self._span("Redis frozen"), frozen([self._process_id_of(self.valkey)]):
            await asyncio.sleep(self.seconds * 0.12)
        await self._until(began, 0.45)
        with self._span("a worker killed"):
            os.kill(self._some_worker(), signal.SIGKILL)
            await asyncio.sleep(self.seconds * 0.1)
        await self._until(began, 0.62)
        with self._span("the database frozen"):
            with frozen(family(self._process_id_of(self.postgres))):
                await asyncio.sleep(max(2.0, min(self.seconds * 0.1, 6.0)))
            await asyncio.sleep(RECOVERY_SECONDS)
        await self._until(began, 0.85)
        with self._span("Redis gone"):
            self.valkey.stop()
            await self._until(began, 1.0)

    async def _until(self, began: float, share: float) -> None:
        await asyncio.sleep(max(0.0, began + share * self.seconds - time.monotonic()))

    @contextmanager
    def _span(self, name: str) -> Iterator[None]:
        span = self.spans[name] = Span(time.monotonic(), float("inf"))
        try:
            yield
        finally:
            span.end = time.monotonic()

    def _process_id_of(self, server: PostgresServer | ValkeyServer) -> int:
        assert server.process_id is not None
        return server.process_id

    def _some_worker(self) -> int:
        return int(workers_memory_mib(self.server_process_id).popitem()[0])


def workers_memory_mib(server_process_id: int) -> dict[str, float]:
    """The private memory of each worker process, by its id."""
    figures = memory_mib(server_process_id, "Private_Dirty")
    return {name.split()[0]: mib for name, mib in figures.items() if name.endswith(" worker")}


@contextmanager
def frozen(process_ids: list[int]) -> Iterator[None]:
    """Stopped, with their sockets open."""
    for process_id in process_ids:
        os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        for process_id in process_ids:
            os.kill(process_id, signal.SIGCONT)
