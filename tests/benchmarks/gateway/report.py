"""What was measured, in words and tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.benchmarks.gateway.goals import Verdict, added, entry_named, one_a_server, verdicts, workers_mib
from tests.benchmarks.gateway.load import Cell
from tests.benchmarks.gateway.runs import WARM_UP, Entry, Figure

BARE = "bare upstream"
MOST_OTHERS = 0.2


def text(
    results: Mapping[str, Any], one_worker: Sequence[Entry], workers: Sequence[Entry], cells: Sequence[Cell]
) -> str:
    sections = [
        _about(results, [*one_worker, *workers]),
        _table("Requests/s, median (lowest-highest)", one_worker, _asked(cells), "per_second", _spread),
        _latencies(one_worker, _asked(cells)),
        _streams(one_worker, cells),
        _table(
            "Processor time of the target, us for each request, or for each chunk of a stream",
            one_worker,
            cells,
            "cpu_us",
            _spread,
        ),
        _cores(one_worker, cells),
        _ratios(one_worker, cells),
        _workers(workers),
        _memory([*one_worker, *workers]),
        _errors([*one_worker, *workers]),
        _books(results["books"]),
        _targets([Verdict(**each) for each in results["targets"]]),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def summary(entries: Sequence[Entry], cells: Sequence[Cell]) -> dict[str, Any]:
    """Every figure of every target, and how many times that of each other it is."""
    found: dict[str, Any] = {}
    for entry in entries:
        figures = found[entry.target.name] = {}
        for cell in cells:
            for name in _figures(cell):
                figure = entry.figure(cell.name, name)
                figures[f"{cell.name} {name}"] = figure and {
                    "value": figure.value,
                    "low": figure.low,
                    "high": figure.high,
                    "times": {
                        other.target.name: _times(figure, other.figure(cell.name, name)) for other in entries
                    },
                }
    return found


def targets(
    one_worker: Sequence[Entry], workers: Sequence[Entry], cells: Sequence[Cell]
) -> list[dict[str, str]]:
    return [verdict.as_json() for verdict in verdicts(one_worker, workers, cells)]


def _figures(cell: Cell) -> tuple[str, ...]:
    if cell.is_stream:
        return ("chunks_per_second", "first_p50_ms", "first_p99_ms", "cpu_us")
    return ("per_second", "p50_ms", "p99_ms", "cpu_us")


def _asked(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if not cell.is_stream]


def _times(figure: Figure, other: Figure | None) -> float | None:
    return figure.value / other.value if other and other.value else None


def _about(results: Mapping[str, Any], entries: Sequence[Entry]) -> str:
    machine = results["machine"]
    load = machine["load_average"][0]
    lines = [
        f"{machine['cores']} cores of {machine['processor']}, Python {machine['python']},"
        f" {results['rounds']} rounds of {results['seconds']} s; load average before: {load:.1f}",
        f"Client: {results['client']}. One worker: the target on one core, all else on another.",
        "A cell with errors is marked ! and used for nothing.",
        *results["missing"],
    ]
    others = _others(entries)
    if others > MOST_OTHERS:
        lines.append(
            f"NOISE: other work took {others:.1f} cores meanwhile. Rates, latencies and what is made of them"
            " below are of no use; processor time still is."
        )
    return "\n".join(lines)


def _others(entries: Sequence[Entry]) -> float:
    """Cores that were used by nobody of ours, on the median."""
    shares = [
        each.cores["others"]
        for entry in entries
        for rounds in entry.rounds.values()
        for each in rounds
        if "others" in each.cores
    ]
    return statistics.median(shares) if shares else 0.0


def _table(
    title: str,
    entries: Sequence[Entry],
    cells: Sequence[Cell],
    name: str,
    show: Callable[[Figure], str],
) -> str:
    rows = [[entry.target.name, *(_cell(entry, cell, name, show) for cell in cells)] for entry in entries]
    return _grid(title, ["", *(cell.name for cell in cells)], rows)


def _cell(entry: Entry, cell: Cell, name: str, show: Callable[[Figure], str]) -> str:
    figure = entry.figure(cell.name, name)
    if figure is not None:
        return show(figure)
    return "!" if entry.errors(cell.name) else "-"


def _grid(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first, *others = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        return "  ".join([first, *(other.strip().rjust(len(other)) for other in others)]).rstrip()

    return "\n".join([title, line(head), *(line(row) for row in rows)])


def _spread(figure: Figure) -> str:
    return f"{figure.value:,.0f} ({figure.low:,.0f}-{figure.high:,.0f})"


def _latencies(entries: Sequence[Entry], cells: Sequence[Cell]) -> str:
    reference = entry_named(entries, BARE)
    rows = []
    for entry in entries:
        row = [entry.target.name]
        for cell in cells:
            pair = [entry.figure(cell.name, name) for name in ("p50_ms", "p99_ms")]
            more = [added(entry, reference, cell.name, name) for name in ("p50_ms", "p99_ms")]
            if pair[0] is None or pair[1] is None:
                row.append("!" if entry.errors(cell.name) else "-")
            elif entry is reference or more[0] is None or more[1] is None:
                row.append(f"({pair[0].value:.2f} / {pair[1].value:.2f})")
            else:
                row.append(f"{more[0]:.2f} / {more[1]:.2f}")
        rows.append(row)
    title = (
        "Latency added to the bare upstream's at the same concurrency, p50 / p99 in ms (its own in brackets)"
    )
    return _grid(title, ["", *(cell.name for cell in cells)], rows)


def _streams(entries: Sequence[Entry], cells: Sequence[Cell]) -> str:
    head, rows = [""], [[entry.target.name] for entry in entries]
    for cell in cells:
        if not cell.is_stream:
            continue
        head += [f"{cell.name}: chunks/s", "first p50", "p99 ms"]
        for entry, row in zip(entries, rows, strict=True):
            row += [
                _cell(entry, cell, "chunks_per_second", _delivered(cell)),
                _cell(entry, cell, "first_p50_ms", lambda figure: f"{figure.value:.1f}"),
                _cell(entry, cell, "first_p99_ms", lambda figure: f"{figure.value:.1f}"),
            ]
    described = "; ".join(
        f"{cell.name}: {cell.concurrency} x {cell.model}" for cell in cells if cell.is_stream
    )
    return _grid(f"Streams ({described}); first: time to the first token", head, rows)


def _delivered(cell: Cell) -> Callable[[Figure], str]:
    offered = cell.offered_per_second
    if offered is None:
        return _spread
    return lambda figure: f"{figure.value:,.0f} ({100 * figure.value / offered:.0f} %)"


def _cores(entries: Sequence[Entry], cells: Sequence[Cell]) -> str:
    """Who was busy: a target that is measured uses up its core, and nobody else does."""
    rows = []
    for entry in entries:
        row = [entry.target.name]
        for cell in cells:
            last = entry.rounds[cell.name][-1].cores if entry.rounds[cell.name] else {}
            row.append(" ".join(f"{name[0]}{share:.2f}" for name, share in last.items()))
        rows.append(row)
    title = "Cores in use in the last round: u(pstream), t(arget), d(atabase), c(lient), o(thers: noise)"
    return _grid(title, ["", *(cell.name for cell in cells)], rows)


def _ratios(entries: Sequence[Entry], cells: Sequence[Cell]) -> str:
    ours = [entry for entry in entries if entry.target.name.startswith("gateway")]
    others = [entry for entry in entries if entry not in ours]
    rows = []
    for entry in ours:
        for cell in cells:
            for name in _figures(cell):
                figure = entry.figure(cell.name, name)
                if figure is None:
                    continue
                ratios = [_times(figure, other.figure(cell.name, name)) for other in others]
                shown = ["-" if ratio is None else f"{ratio:.3g}" for ratio in ratios]
                label = f"{entry.target.name}, {cell.name}, {name}"
                rows.append([label, f"{figure.value:,.4g}", *shown])
    head = ["the gateway's figure, and how many times that of:", "value"]
    return _grid("Ratios", [*head, *(other.target.name for other in others)], rows) if rows else ""


def _workers(entries: Sequence[Entry]) -> str:
    if not entries:
        return ""
    names = [name for name in entries[0].rounds if name != WARM_UP]
    rows = [[entry.target.name, *(_workers_cell(entry, name) for name in names)] for entry in entries]
    return _grid(
        "One worker and two, unpinned: all share all cores with load and database", ["", *names], rows
    )


def _workers_cell(entry: Entry, name: str) -> str:
    figure = entry.figure(name, "per_second")
    return "!" if figure is None else _spread(figure)


def _memory(entries: Sequence[Entry]) -> str:
    rows = []
    for entry in one_a_server(entries):
        if entry.memory:
            idle, first, last = entry.target.idle_memory_mib, entry.memory[0], entry.memory[-1]
            each = " + ".join(f"{share:.0f}" for share in workers_mib(last))
            shares = [sum(shares.values()) for shares in (idle, first, last)]
            rows.append([entry.target.name, *(f"{share:.0f}" for share in shares), each])
    head = ["", "idle", "after round 1", "after all", "of which workers"]
    return _grid("Memory in MiB (proportional share, all its processes)", head, rows)


def _errors(entries: Sequence[Entry]) -> str:
    lines = [
        f"! {entry.target.name}, {cell}: {', '.join(f'{kind} {count}' for kind, count in errors.items())}"
        for entry in entries
        for cell in entry.rounds
        if (errors := entry.errors(cell))
    ]
    return "\n".join(lines) or "No errors."


def _books(books: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["Books"]
    for name, each in books.items():
        lines.append(
            f"{name}: {'right' if each['is_right'] else 'WRONG'}. {each['answered']:,} answers with 200;"
            f" reservations {each['reservations']}; cut by the client at the end: up to {each['cut']:,};"
            f" failed {each['failed']:,}; {each['activity_rows']:,} rows of activity;"
            f" audit_ledger: {len(each['audit']['broken'])} of {len(each['audit']['invariants'])} broken;"
            f" complaints in its log: {each['complaints'] or 'none'}"
        )
    return "\n".join(lines)


def _targets(found: Sequence[Verdict]) -> str:
    rows = [[each.figure, each.target, each.measured, each.verdict] for each in found]
    return _grid("Targets", ["", "target", "measured", ""], rows)
