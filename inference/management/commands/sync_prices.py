from __future__ import annotations

import io
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from gateway_site.management.operator_command import OperatorCommand
from inference.catalog.price_lists import synchronization
from inference.catalog.price_lists.comparison import PriceState, compare, questions
from inference.catalog.price_lists.entries import Match, PriceAnswers
from inference.catalog.price_lists.report import comparison_as_json
from inference.catalog.price_lists.second_file import SecondFile
from organization.audit.trail import Actor

MIN_WIDTH = 100


class Command(OperatorCommand):
    help = (
        "Compare the catalog's prices with the public list of genai-prices (the extra [prices]), and with "
        "--apply make new and changed ones versions of the models' prices."
    )

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--second", metavar="FILE.json", type=Path,
            help="litellm's model_prices_and_context_window.json: where it disagrees, nothing is applied",
        )  # fmt: skip
        parser.add_argument(
            "--only", metavar="GLOB", action="append", default=[],
            help="only models whose ids fit; an id in full also applies what the two files disagree about",
        )  # fmt: skip
        parser.add_argument(
            "--match", metavar="MODEL=PROVIDER/ID", action="append", default=[],
            help="the list's row for a model; kept once its price is applied",
        )  # fmt: skip
        parser.add_argument("--apply", action="store_true", help="add versions of new and changed prices")
        parser.add_argument(
            "--yes", action="store_true", help="also changes over 20 % and prices that are hardly meant"
        )

    def perform(
        self,
        *,
        second: Path | None,
        only: list[str],
        match: list[str],
        apply: bool,
        yes: bool,
        **options: Any,
    ) -> dict[str, Any]:
        synchronization.require_library()
        # Here and not above: the command must be able to say that it is not installed.
        from inference.catalog.price_lists import genai_list

        matches = _matches(match)
        other = SecondFile.read(second) if second else None
        answers = genai_list.answer(questions(only, matches))
        _require_rows(answers, matches)
        comparison = compare(answers, other)
        outcome = comparison_as_json(comparison)
        if apply:
            chosen, left = synchronization.choose(comparison, named=only, is_confirmed=yes)
            actor = Actor.command("sync_prices")
            applied = synchronization.apply(chosen, comparison.list_name, actor)
            outcome |= {"applied": applied, "left": left}
        return outcome

    def describe(self, outcome: dict[str, Any]) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(title=f"Prices in the catalog beside {outcome['list']}", title_justify="left")
        for heading in ("State", "Model", "Row of the list", "What is different"):
            table.add_column(heading, overflow="fold")
        for row in outcome["models"]:
            table.add_row(row["state"], row["model"], "\n".join(row["rows"]), "\n".join(_lines(row)))
        printed = io.StringIO()
        width = max(MIN_WIDTH, shutil.get_terminal_size().columns)
        Console(file=printed, width=width, markup=False, highlight=False, emoji=False).print(table)
        return f"{printed.getvalue()}{_summary(outcome)}"

    def complaint_about(self, outcome: dict[str, Any]) -> str | None:
        if left := outcome.get("left"):
            return "Not applied: " + "; ".join(f"{model} ({reason})" for model, reason in left.items())
        return None


def _matches(words: list[str]) -> dict[str, str]:
    matches = {}
    for word in words:
        model, separator, row_id = word.partition("=")
        if not separator or "/" not in row_id:
            raise CommandError(f"--match must be MODEL=PROVIDER/ID, not {word!r}.")
        matches[model] = row_id
    return matches


def _require_rows(answers: PriceAnswers, matches: dict[str, str]) -> None:
    for answer in answers.answers:
        if answer.match is Match.MISSING and answer.model in matches:
            raise CommandError(f"--match: {answers.list_name} has no row {matches[answer.model]!r}.")


def _lines(row: dict[str, Any]) -> list[str]:
    lines = [row["reason"]] if row["reason"] else []
    for version in row["versions"]:
        since = f"from {version['valid_from'][:10]} on: " if version["valid_from"] else ""
        lines += [f"{since}{line}" for line in version["lines"]]
    lines += [f"the second file: {line['text']}" for line in row["disagreements"]]
    lines += [f"needs --yes: {doubt}" for doubt in row["doubts"]]
    return [*lines, *row["notes"]]


def _summary(outcome: dict[str, Any]) -> str:
    counts = Counter(row["state"] for row in outcome["models"])
    shown = ", ".join(f"{counts[state.value]} {state.value}" for state in PriceState if counts[state.value])
    if "applied" not in outcome:
        return f"{shown or 'No models'}. Nothing was applied; --apply adds new and changed prices."
    return f"{shown or 'No models'}. Applied: {', '.join(outcome['applied']) or 'nothing'}."
