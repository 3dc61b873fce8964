"""
Whether a worker's memory stays flat, over as many requests as one cares to wait for.

    python -m tests.benchmarks.memory [--requests 1000000] [--concurrency 64] [--sqlite]

Whole answers and streams in turn, all accounting on, PostgreSQL unless told otherwise. Twenty times on the
way it is told how much memory the process that serves has of its own, which does not depend on who else is
running. It fails if that has grown by more than 3 % since half of the requests were done: a heap takes a
while to settle, a leak goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.gateway import load as gateway_load
from tests.benchmarks.gateway import ours, wrk
from tests.benchmarks.gateway.load import Cell, Measured
from tests.benchmarks.gateway.process import Pinning, Server, memory_mib
from tests.benchmarks.gateway.runs import say
from tests.benchmarks.gateway.targets import Bench, Target
from tests.harness.live_server import free_port
from tests.harness.postgres import PostgresServer

TELLINGS = 20
MOST_GROWTH = 1.03
# A look at the clock every so often is enough to stop near the number that was asked for.
SLICE_SECONDS = 5


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--sqlite", action="store_true")
    return parser.parse_args(arguments)


class Load:
    """Puts slices of load on the gateway: nine of whole answers, then one of streams."""

    def __init__(self, target: Target, cells: list[Cell], directory: Path) -> None:
        self._target = target
        self._whole, self._streams = cells
        self._directory = directory
        self._wrk = shutil.which("wrk")
        self._slices = 0

    def slice(self) -> Measured:
        self._slices += 1
        if self._slices % 10 and self._wrk:
            address = self._target.address
            return wrk.drive(self._wrk, address, self._whole, SLICE_SECONDS, self._directory)
        cell = self._whole if self._slices % 10 else self._streams
        return gateway_load.drive(self._target.address, cell, SLICE_SECONDS)


def serving(target: Target) -> dict[str, float]:
    """Without the processes that only do what is scheduled."""
    found = memory_mib(target.server.process.pid, "Anonymous")
    return {name: mib for name, mib in found.items() if name.endswith(("main", "worker"))}


def measure(target: Target, load: Load, requests: int, note: ours.Gateway) -> bool:
    done, told = 0, 0
    first: dict[str, float] = {}
    now = serving(target)
    while done < requests:
        measured = load.slice()
        note.note(measured)
        done += measured.answered
        if not measured.answered:
            raise RuntimeError(f"nothing is answered any more: {measured.errors}")
        now = serving(target)
        if done * TELLINGS >= requests * (told + 1):
            told += 1
            say(f"{done:>10,} requests: " + ", ".join(f"{name} {mib:.0f} MiB" for name, mib in now.items()))
        if not first and done * 2 >= requests:
            first = now
    return all(now[name] <= mib * MOST_GROWTH for name, mib in first.items())


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    cells = [
        Cell("whole", "mock-t16-r0", options.concurrency),
        Cell("streams", "mock-t100-r0", options.concurrency, is_stream=True),
    ]
    with tempfile.TemporaryDirectory(prefix="gw-memory-") as name, contextlib.ExitStack() as stack:
        directory, port = Path(name), free_port()
        command = [sys.executable, "-m", "tests.benchmarks.gateway.upstream", "--port", str(port)]
        upstream = Server(command, port=port, log=directory / "upstream.log")
        stack.callback(upstream.stop)
        postgres = None if options.sqlite else stack.enter_context(PostgresServer(fsync=True))
        url = ours.new_database(postgres, "memory") if postgres else ""
        bench = Bench(directory, Pinning(), upstream, cells)
        gateway = ours.install(bench, "gateway", workers=1, organizations=1, database_url=url)
        target = ours.start(bench, gateway, postgres)
        stopping = stack.enter_context(contextlib.ExitStack())
        stopping.callback(target.stop)
        is_flat = measure(target, Load(target, cells, directory), options.requests, gateway)
        stopping.close()
        is_right = gateway.audit()["is_right"]
    say(f"flat: {'yes' if is_flat else 'NO'}; books: {'right' if is_right else 'WRONG'}")
    return 0 if is_flat and is_right else 1


if __name__ == "__main__":
    sys.exit(main())
