"""
How fast the gateway is, with all its accounting, beside what it can be compared with.

    python -m tests.benchmarks.gateway [--seconds 3] [--rounds 3] [--concurrency 1,16,64,256] [--quick]
        [--only sqlite,postgres,workers,nginx,pass-through,litellm,portkey]
        [--litellm peers/bin/litellm] [--portkey peers] [--out DIRECTORY]

Everything runs here, on loopback: an upstream that only pretends, the gateway as `manage.py serve` runs it
on SQLite and on PostgreSQL with every commit flushed, and the references. With one worker, what is measured
has a core for itself and the load, the upstream and PostgreSQL have another; with two workers everybody
shares all cores. Ratios within one run mean something, numbers on their own do not.

The gateway always asks its upstream for a stream, and so reads every word of an answer; the others pass a
whole answer on. Afterwards its books are audited and compared with what clients were told.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks.gateway import ours, plot, report
from tests.benchmarks.gateway.load import Cell
from tests.benchmarks.gateway.ours import Gateway
from tests.benchmarks.gateway.process import Pinning, Server, available_cores
from tests.benchmarks.gateway.runs import Entry, Runner, say
from tests.benchmarks.gateway.targets import Bench, Target, bare, references
from tests.harness.live_server import ROOT, free_port
from tests.harness.postgres import PostgresServer

ORGANIZATIONS = 16
PARTS = ("sqlite", "postgres", "workers", "nginx", "pass-through", "litellm", "portkey")
PACKAGES = ("aiohttp", "django", "msgspec", "psycopg", "uvicorn", "uvloop")
PACED = Cell("paced", "mock-t100-r50", 256, is_stream=True, offered_per_second=12_800)
UNPACED = Cell("unpaced", "mock-t200-r0", 8, is_stream=True)
QUICK_PACED = Cell("paced", "mock-t10-r20", 8, is_stream=True, offered_per_second=160)
QUICK_UNPACED = Cell("unpaced", "mock-t50-r0", 4, is_stream=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds, on SQLite: does it work?")
    parser.add_argument("--seconds", type=float, help="for each load in each round (3)")
    parser.add_argument("--rounds", type=int, help="the median is shown (3)")
    parser.add_argument("--concurrency", default="", help="1,16,64,256")
    parser.add_argument("--only", default="", help=f"of {','.join(PARTS)}")
    parser.add_argument("--words", type=int, default=16, help="in an answer that is not a stream")
    parser.add_argument("--client", choices=["wrk", "own"], help="wrk where it is installed")
    parser.add_argument("--litellm", metavar="PROGRAM", help="litellm, if it is not on PATH")
    parser.add_argument("--portkey", metavar="PATH", help="start-server.js, or a folder above it")
    parser.add_argument("--out", type=Path, default=ROOT / "test-results" / "benchmark")
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (0.5 if options.quick else 3.0)
    options.rounds = options.rounds or (1 if options.quick else 3)
    concurrencies = options.concurrency or ("1,8" if options.quick else "1,16,64,256")
    options.concurrencies = [int(number) for number in concurrencies.split(",")]
    chosen = options.only or ("sqlite,pass-through" if options.quick else ",".join(PARTS))
    options.parts = set(chosen.split(","))
    if unknown := options.parts - set(PARTS):
        parser.error(f"--only knows {', '.join(PARTS)}, and not {', '.join(sorted(unknown))}.")
    return options


def loads(options: argparse.Namespace) -> list[Cell]:
    model = f"mock-t{options.words}-r0"
    streams = [QUICK_PACED, QUICK_UNPACED] if options.quick else [PACED, UNPACED]
    return [*(Cell(f"c={number}", model, number) for number in options.concurrencies), *streams]


class Benchmark:
    def __init__(self, options: argparse.Namespace, directory: Path, stack: contextlib.ExitStack) -> None:
        self.options = options
        self.cells = loads(options)
        self._stack = stack
        self._pinning = Pinning()
        self._pinning.use(True)
        port = free_port()
        command = [sys.executable, "-m", "tests.benchmarks.gateway.upstream", "--port", str(port)]
        self._upstream = Server(command, port=port, log=directory / "upstream.log")
        stack.callback(self._upstream.stop)
        self._bench = Bench(directory, self._pinning, self._upstream, self.cells)
        wrk = None if options.quick or options.client == "own" else shutil.which("wrk")
        self.client = "wrk, and our own for streams and at a concurrency of 1" if wrk else "our own"
        self._runner = Runner(
            self._upstream, directory, options.seconds, wrk, quiet_seconds=0.0 if options.quick else 20.0
        )
        self._postgres: PostgresServer | None = None
        self.missing: list[str] = []
        self.gateways: list[Gateway] = []
        self.one_worker: list[Entry] = []
        self.workers: list[Entry] = []

    def run(self) -> None:
        if "postgres" in self.options.parts or "workers" in self.options.parts:
            self._postgres = self._stack.enter_context(PostgresServer(fsync=True))
        with contextlib.ExitStack() as running:
            self.one_worker = [Entry(bare(self._bench)), *self._gateways(1, running)]
            self.one_worker += self._references(running)
            self._runner.run(self.one_worker, self.cells, self.options.rounds)
        if "workers" in self.options.parts:
            try:
                self._run_workers()
            except RuntimeError as problem:
                # What is measured already is not lost for it.
                self.missing.append(f"One worker and two are left out: {problem}")
        for gateway in self.gateways:
            books = gateway.audit()
            say(f"  books of {gateway.name}: {'right' if books['is_right'] else 'WRONG'}")

    def _run_workers(self) -> None:
        """One worker and two on the same cores, with an organization for each client and with one for all."""
        self._pinning.use(False)
        self._pinning.move(self._upstream.process.pid)
        if self._postgres and self._postgres.process_id:
            self._pinning.move(self._postgres.process_id)
        middle = [cell for cell in self.cells if not cell.is_stream and cell.concurrency >= 64]
        with contextlib.ExitStack() as running:
            for count in (1, 2):
                for entry in self._gateways(count, running, unpinned=True):
                    self.workers += self._spread_and_hot(entry)
            self._runner.run(self.workers, middle[:1] or self.cells[:1], self.options.rounds)

    def _spread_and_hot(self, hot: Entry) -> Iterator[Entry]:
        keys = next(gateway.keys for gateway in self.gateways if gateway.target is hot.target)
        address = replace(hot.target.address, keys=keys)
        yield Entry(
            replace(hot.target, name=f"{hot.target.name}, {len(keys)} org.", address=address), hot.listener
        )
        hot.target.name += ", one org."
        yield hot

    def _gateways(
        self, workers: int, running: contextlib.ExitStack, *, unpinned: bool = False
    ) -> Iterator[Entry]:
        databases = [kind for kind in ("sqlite", "postgres") if kind in self.options.parts]
        for kind in databases:
            name = f"gateway {kind}" + (f", {workers} w." if unpinned else "")
            postgres = self._postgres if kind == "postgres" else None
            url = ours.new_database(postgres, f"bench{len(self.gateways)}") if postgres else ""
            organizations = ORGANIZATIONS if unpinned else 1
            gateway = ours.install(
                self._bench, name, workers=workers, organizations=organizations, database_url=url
            )
            target = ours.start(self._bench, gateway, postgres)
            running.callback(target.stop)
            self.gateways.append(gateway)
            yield Entry(target, gateway.note)

    def _references(self, running: contextlib.ExitStack) -> Iterator[Entry]:
        starts, self.missing = references(
            self._bench, self.options.litellm, self.options.portkey, self.options.parts.__contains__
        )
        for start in starts:
            try:
                target: Target = start()
            except RuntimeError as problem:
                self.missing.append(f"left out: {problem}")
                continue
            running.callback(target.stop)
            yield Entry(target)


def machine() -> dict[str, Any]:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(available_cores()) or os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    started = time.time()
    before = machine()
    with tempfile.TemporaryDirectory(prefix="gw-bench-") as directory, contextlib.ExitStack() as stack:
        benchmark = Benchmark(options, Path(directory), stack)
        benchmark.run()
    results = {
        "machine": before,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "client": benchmark.client,
        "took_seconds": round(time.time() - started),
        "missing": benchmark.missing,
        "loads": [
            {"name": cell.name, "model": cell.model, "concurrency": cell.concurrency}
            for cell in benchmark.cells
        ],
        "one_worker": [entry.as_json() for entry in benchmark.one_worker],
        "workers": [entry.as_json() for entry in benchmark.workers],
        "books": {gateway.name: gateway.books for gateway in benchmark.gateways},
        "summary": report.summary(benchmark.one_worker, benchmark.cells),
        "targets": report.targets(benchmark.one_worker, benchmark.workers, benchmark.cells),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=1))
    (options.out / "results.svg").write_text(plot.plot(benchmark.one_worker, benchmark.cells))
    sys.stdout.write(report.text(results, benchmark.one_worker, benchmark.workers, benchmark.cells))
    sys.stdout.write(f"\nresults.json and results.svg are in {options.out}\n")
    return 0 if all(gateway.books["is_right"] for gateway in benchmark.gateways) else 1


if __name__ == "__main__":
    sys.exit(main())
