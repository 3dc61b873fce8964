"""The targets that the project has set itself, and what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.benchmarks.gateway.load import Cell
from tests.benchmarks.gateway.runs import WARM_UP, Entry

# The least ratio to each of these, in requests/s.
RATES = (("pass-through", 0.5), ("Portkey", 4), ("LiteLLM", 40))
MOST_ADDED_MS = (("gateway postgres", 2.0), ("gateway sqlite", 1.0))
LEAST_DELIVERED = 0.95
MOST_TIMES_NGINX = 2.0
MOST_TIMES_P50 = 10.0
MOST_WORKER_MIB = 150.0
UNKNOWN = "not measured"


@dataclass(frozen=True)
class Verdict:
    figure: str
    target: str
    measured: str
    verdict: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def entry_named(entries: Sequence[Entry], name: str) -> Entry | None:
    return next((entry for entry in entries if entry.target.name == name), None)


def workers_mib(memory: Mapping[str, float]) -> list[float]:
    """The processes that serve: the main one, or those that it has started for that."""
    workers = [share for name, share in memory.items() if name.endswith(" worker")]
    return workers or [share for name, share in memory.items() if name.endswith(" main")]


def added(entry: Entry, reference: Entry | None, cell: str, name: str) -> float | None:
    figure = entry.figure(cell, name)
    base = reference.figure(cell, name) if reference else None
    return figure.value - base.value if figure and base else None


def verdicts(one_worker: Sequence[Entry], workers: Sequence[Entry], cells: Sequence[Cell]) -> list[Verdict]:
    return [
        *_rates(one_worker),
        *_latencies(one_worker),
        *_streams(one_worker, next(cell for cell in cells if cell.offered_per_second)),
        *_scaling(workers),
        *_memory([*one_worker, *workers]),
        Verdict("memory over a million requests", "flat", UNKNOWN, "tests.benchmarks.memory"),
        Verdict("cost report", "< 300 ms", UNKNOWN, "tests.benchmarks.cost_report"),
        Verdict("token counting", "no callback over 20 ms", UNKNOWN, "tests.benchmarks.loop_lag"),
    ]


def _at_least(figure: str, least: float, value: float | None, unit: str) -> Verdict:
    target = f"at least {least:g}{unit}"
    if value is None:
        return Verdict(figure, target, UNKNOWN, "")
    return Verdict(figure, target, f"{value:.3g}{unit}", "met" if value >= least else "MISSED")


def _at_most(figure: str, most: float, value: float | None, unit: str) -> Verdict:
    target = f"at most {most:g}{unit}"
    if value is None:
        return Verdict(figure, target, UNKNOWN, "")
    return Verdict(figure, target, f"{value:.3g}{unit}", "met" if value <= most else "MISSED")


def ratio(entry: Entry | None, other: Entry | None, cell: str, name: str) -> float | None:
    mine = entry.figure(cell, name) if entry else None
    its = other.figure(cell, name) if other else None
    return mine.value / its.value if mine and its and its.value else None


def _rates(entries: Sequence[Entry]) -> Iterator[Verdict]:
    ours = entry_named(entries, "gateway postgres")
    for cell in ("c=64", "c=256"):
        for name, least in RATES:
            times = ratio(ours, entry_named(entries, name), cell, "per_second")
            yield _at_least(f"requests/s at {cell}, PostgreSQL, of {name}", least, times, " x")


def _latencies(entries: Sequence[Entry]) -> Iterator[Verdict]:
    bare = entry_named(entries, "bare upstream")
    for name, most in MOST_ADDED_MS:
        entry = entry_named(entries, name)
        p50 = added(entry, bare, "c=1", "p50_ms") if entry else None
        p99 = added(entry, bare, "c=1", "p99_ms") if entry else None
        yield _at_most(f"{name}, added p50 at c=1", most, p50, " ms")
        yield _at_most(f"{name}, p99 at c=1", MOST_TIMES_P50, p99 / p50 if p50 and p99 else None, " x p50")


def _streams(entries: Sequence[Entry], paced: Cell) -> Iterator[Verdict]:
    nginx = entry_named(entries, "nginx proxy_pass")
    for name, _ in MOST_ADDED_MS:
        entry = entry_named(entries, name)
        chunks = entry.figure(paced.name, "chunks_per_second") if entry else None
        share = chunks.value / (paced.offered_per_second or 1) if chunks else None
        yield _at_least(f"{name}, paced streams delivered", LEAST_DELIVERED, share, "")
        times = ratio(entry, nginx, paced.name, "first_p50_ms")
        yield _at_most(f"{name}, paced streams, first token", MOST_TIMES_NGINX, times, " x nginx")


def _scaling(entries: Sequence[Entry]) -> Iterator[Verdict]:
    for kind in ("postgres", "sqlite"):
        for orgs, least in (("16 org.", 1.6), ("one org.", 1.2)):
            one, two = (entry_named(entries, f"gateway {kind}, {count} w., {orgs}") for count in (1, 2))
            cell = next((name for name in two.rounds if name != WARM_UP), "") if two else ""
            times = ratio(two, one, cell, "per_second")
            yield _at_least(f"two workers over one, {kind}, {orgs}", least, times, " x")


def one_a_server(entries: Sequence[Entry]) -> list[Entry]:
    """The first of those that are the same processes, asked in different ways."""
    return list({entry.target.server.port: entry for entry in reversed(entries)}.values())[::-1]


def _memory(entries: Sequence[Entry]) -> Iterator[Verdict]:
    for entry in one_a_server(entries):
        if entry.memory and entry.target.name.startswith("gateway"):
            most = max(workers_mib(entry.memory[-1]), default=None)
            yield _at_most(f"{entry.target.name}, a worker after load", MOST_WORKER_MIB, most, " MiB")
