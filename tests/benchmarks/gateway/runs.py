"""Rounds: every target in turn for every load, again and again, so that all have the same luck."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.gateway import load
from tests.benchmarks.gateway import wrk as gateway_wrk
from tests.benchmarks.gateway.load import Cell, Measured
from tests.benchmarks.gateway.process import (
    Server,
    all_cpu_seconds,
    cpu_seconds,
    memory_mib,
    own_cpu_seconds,
    wait_until_quiet,
)
from tests.benchmarks.gateway.targets import Target

# A rate is taken from at least so many requests for each client at once, if that takes no longer than this.
ENOUGH_FOR_EACH = 3
LONGEST_SECONDS = 20.0
WARM_UP = "warm-up"
WARM_UP_CONCURRENCY = 16

Listener = Callable[[Measured], None]


@dataclass(frozen=True)
class Figure:
    """One number of one cell: the median of the rounds, and what they ranged over."""

    value: float
    low: float
    high: float


@dataclass
class Entry:
    """A target in one run, and who keeps its books."""

    target: Target
    listener: Listener | None = None
    rounds: dict[str, list[Measured]] = field(default_factory=lambda: defaultdict(list))
    # After each round.
    memory: list[dict[str, float]] = field(default_factory=list)

    def errors(self, cell: str) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for measured in self.rounds[cell]:
            for kind, count in measured.errors.items():
                found[kind] += count
        return dict(found)

    def figure(self, cell: str, name: str) -> Figure | None:
        """Nothing where the cell was not measured, or had errors."""
        values = [getattr(measured, name) for measured in self.rounds.get(cell, [])]
        if not values or None in values or self.errors(cell):
            return None
        return Figure(statistics.median(values), min(values), max(values))

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "version": self.target.version,
            "rounds": {cell: [each.as_json() for each in measured] for cell, measured in self.rounds.items()},
            "idle_memory_mib": self.target.idle_memory_mib,
            "memory_mib_after_rounds": self.memory,
        }


@dataclass(frozen=True)
class Runner:
    upstream: Server
    directory: Path
    seconds: float
    wrk: str | None
    # How long what was started may take to come to rest.
    quiet_seconds: float

    def run(self, entries: Sequence[Entry], cells: Sequence[Cell], rounds: int) -> None:
        wait_until_quiet([entry.target.server.process.pid for entry in entries], self.quiet_seconds)
        warm_up = Cell(WARM_UP, cells[0].model, WARM_UP_CONCURRENCY)
        for entry in entries:
            measured = load.drive(entry.target.address, warm_up, min(self.seconds, 1))
            entry.rounds[WARM_UP].append(measured)
            self._note(entry, measured)
        for number in range(1, rounds + 1):
            for cell in cells:
                for entry in entries:
                    measured = self._measure(entry, cell)
                    entry.rounds[cell.name].append(measured)
                    self._note(entry, measured)
                    say(f"  round {number}, {cell.name}, {entry.target.name}: {in_short(measured)}")
            for entry in entries:
                entry.memory.append(memory_mib(entry.target.server.process.pid))

    def _note(self, entry: Entry, measured: Measured) -> None:
        if entry.listener is not None:
            entry.listener(measured)

    def _measure(self, entry: Entry, cell: Cell) -> Measured:
        target, seconds = entry.target, self._seconds(entry, cell)
        watched = {"upstream": self.upstream.process.pid}
        if target.server is not self.upstream:
            watched["target"] = target.server.process.pid
        if target.database_process_id is not None:
            watched["database"] = target.database_process_id
        used = {name: cpu_seconds(process_id) for name, process_id in watched.items()}
        own, everybody, started = own_cpu_seconds(), all_cpu_seconds(), time.perf_counter()
        # With one client, latency is the point, and ours keeps every one.
        if self.wrk and not cell.is_stream and cell.concurrency > 1:
            measured = gateway_wrk.drive(self.wrk, target.address, cell, seconds, self.directory)
        else:
            measured = load.drive(target.address, cell, seconds)
        took = time.perf_counter() - started
        cores = {name: (cpu_seconds(watched[name]) - before) / took for name, before in used.items()}
        cores["client"] = (own_cpu_seconds() - own) / took
        others = (all_cpu_seconds() - everybody) / took - sum(cores.values())
        measured.cores = {**cores, "others": max(others, 0.0)}
        units = measured.answered * (cell.words if cell.is_stream else 1)
        if units and "target" in cores:
            measured.cpu_us = cores["target"] * took / units * 1e6
        if not (measured.chunks_per_second if cell.is_stream else measured.per_second):
            measured.errors["nothing within the time"] = 1
        return measured

    def _seconds(self, entry: Entry, cell: Cell) -> float:
        """Longer for what is slow, or it would be judged by the few that it answers in the time."""
        if cell.is_stream:
            return max(self.seconds, 2 * cell.stream_seconds)
        known = [each.per_second for rounds in entry.rounds.values() for each in rounds if each.per_second]
        if not known:
            return self.seconds
        return max(self.seconds, min(ENOUGH_FOR_EACH * cell.concurrency / known[-1], LONGEST_SECONDS))


def in_short(measured: Measured) -> str:
    errors = f", ERRORS {measured.errors}" if measured.errors else ""
    if measured.chunks_per_second is not None:
        return (
            f"{measured.chunks_per_second:,.0f} chunks/s, first after {measured.first_p50_ms:.1f} ms{errors}"
        )
    return f"{measured.per_second:,.0f}/s, {measured.p50_ms:.2f} / {measured.p99_ms:.2f} ms{errors}"


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
