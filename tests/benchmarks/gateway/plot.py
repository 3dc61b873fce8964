"""The results as a picture: SVG, written by hand, for a light background."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from tests.benchmarks.gateway.load import Cell
from tests.benchmarks.gateway.runs import Entry

WIDTH, LABEL_WIDTH, BAR_WIDTH = 960, 170, 640
ROW, GAP, TITLE = 20, 34, 26
OURS, OTHERS, INK, GRID = "#0b6e4f", "#9aa5b1", "#1f2933", "#e4e7eb"


Scale = Callable[[float], float]


class Panel:
    """Bars on a logarithmic scale, one for each target: some are a thousand times others."""

    def __init__(self, title: str, rows: Sequence[tuple[str, float, float, float]], unit: str) -> None:
        self._title = title
        self._rows = rows
        self._unit = unit

    @property
    def height(self) -> int:
        return TITLE + ROW * len(self._rows) + ROW

    def svg(self, top: int) -> list[str]:
        values = [number for _, *numbers in self._rows for number in numbers if number > 0]
        lowest = math.floor(math.log10(min(values, default=1)))
        highest = max(math.ceil(math.log10(max(values, default=10))), lowest + 1)

        def x(value: float) -> float:
            share = (math.log10(max(value, 10**lowest)) - lowest) / (highest - lowest)
            return LABEL_WIDTH + share * BAR_WIDTH

        lines = [_text(12, top + 16, self._title, weight="bold")]
        bottom = top + TITLE + ROW * len(self._rows)
        for power in range(lowest, highest + 1):
            at = x(10**power)
            lines.append(
                f'<line x1="{at:.1f}" y1="{top + TITLE}" x2="{at:.1f}" y2="{bottom}" stroke="{GRID}"/>'
            )
            lines.append(_text(at, bottom + 13, _number(10**power), anchor="middle", size=10))
        for number, (name, value, low, high) in enumerate(self._rows):
            lines += self._bar(top + TITLE + ROW * number, name, (value, low, high), x)
        return lines

    def _bar(self, top: int, name: str, numbers: tuple[float, float, float], x: Scale) -> list[str]:
        value, low, high = numbers
        color = OURS if name.startswith("gateway") else OTHERS
        middle = top + ROW / 2
        return [
            _text(LABEL_WIDTH - 8, middle + 4, name, anchor="end"),
            f'<rect x="{LABEL_WIDTH}" y="{top + 3}" width="{max(x(value) - LABEL_WIDTH, 1):.1f}"'
            f' height="{ROW - 6}" fill="{color}"/>',
            f'<line x1="{x(low):.1f}" y1="{middle}" x2="{x(high):.1f}" y2="{middle}" stroke="{INK}"/>',
            _text(max(x(value), x(high)) + 6, middle + 4, f"{_number(value)} {self._unit}", size=11),
        ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
        f' fill="{INK}">{escape(words)}</text>'
    )


def _rows(entries: Sequence[Entry], cell: Cell, name: str) -> list[tuple[str, float, float, float]]:
    figures = [(entry.target.name, entry.figure(cell.name, name)) for entry in entries]
    return [(target, each.value, each.low, each.high) for target, each in figures if each and each.value > 0]


def plot(entries: Sequence[Entry], cells: Sequence[Cell]) -> str:
    panels = []
    for cell in cells:
        if cell.is_stream:
            title = f"{cell.concurrency} streams at once, {cell.name}"
            panels.append(Panel(f"Chunks/s, {title}", _rows(entries, cell, "chunks_per_second"), "/s"))
            panels.append(
                Panel(f"Time to the first token, {title}", _rows(entries, cell, "first_p50_ms"), "ms")
            )
        else:
            title = f"{cell.concurrency} at once"
            panels.append(Panel(f"Requests/s, {title}", _rows(entries, cell, "per_second"), "/s"))
            if cell.concurrency == 1:
                panels.append(Panel(f"Latency (p50), {title}", _rows(entries, cell, "p50_ms"), "ms"))
    drawn: list[str] = []
    top = GAP
    for panel in panels:
        drawn += panel.svg(top)
        top += panel.height + GAP // 2
    note = "Median of the rounds; the line is what they ranged over. Logarithmic scales."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}"'
            ' font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>',
            _text(12, 20, note, size=11),
            *drawn,
            "</svg>",
        ]
    )
