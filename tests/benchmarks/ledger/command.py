"""Hold and settle pairs per second on the database server of the environment."""

from __future__ import annotations

import tempfile
from statistics import median
from typing import Any

from django.core.management.base import CommandParser
from django.db import connection
from django.db.backends.postgresql.base import DatabaseWrapper as PostgresConnection

from billing.ledger.invariants import audit
from gateway_site.management.operator_command import OperatorCommand
from tests.benchmarks.ledger.measurement import Measured, make_key, measure_ledger, measure_orm

CONCURRENCIES = [1, 16, 64, 256]


class BenchmarkLedger(OperatorCommand):
    help = (
        "Measure durable hold + settle pairs per second on one hot organization, beside the plain ORM."
        " Runs in a database of its own on the configured server, which is dropped afterwards."
    )

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=float, default=3.0, help="for each figure")
        parser.add_argument("--rounds", type=int, default=3, help="interleaved; the median is shown")
        parser.add_argument("--concurrency", type=int, nargs="+", default=CONCURRENCIES)

    def perform(self, **options: Any) -> dict[str, Any]:
        configured = connection.settings_dict["NAME"]
        with tempfile.TemporaryDirectory() as directory:
            if connection.vendor == "sqlite":
                # A file, as in service; the tests' default is memory.
                connection.settings_dict["TEST"]["NAME"] = f"{directory}/benchmark.sqlite3"
            connection.creation.create_test_db(verbosity=0, autoclobber=True)
            try:
                figures = self._measure(options["seconds"], options["rounds"], options["concurrency"])
                broken = [finding.invariant.name for finding in audit() if finding.count]
            finally:
                if isinstance(connection, PostgresConnection):
                    connection.close_pool()
                connection.creation.destroy_test_db(str(configured), verbosity=0)
        return {"database": connection.vendor, "figures": figures, "broken_invariants": broken}

    def _measure(self, seconds: float, rounds: int, concurrency: list[int]) -> list[dict[str, Any]]:
        key = make_key()
        found: dict[tuple[str, int], list[Measured]] = {}
        for _ in range(rounds):
            for callers in concurrency:
                for name, measure in (("ledger", measure_ledger), ("orm", measure_orm)):
                    found.setdefault((name, callers), []).append(measure(key, callers, seconds))
        return [
            self._row(callers, found["ledger", callers], found["orm", callers]) for callers in concurrency
        ]

    def _row(self, callers: int, ledger: list[Measured], orm: list[Measured]) -> dict[str, Any]:
        fast = median(each.pairs_per_second for each in ledger)
        plain = median(each.pairs_per_second for each in orm)
        return {
            "concurrency": callers,
            "ledger_pairs_per_second": fast,
            "ledger_p50_ms": median(each.p50_ms for each in ledger),
            "ledger_p99_ms": median(each.p99_ms for each in ledger),
            "orm_pairs_per_second": plain,
            "ratio": round(fast / plain, 1),
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        lines = [
            f"{row['concurrency']:>5} at once: ledger {row['ledger_pairs_per_second']:>8.0f}/s"
            f" (p50 {row['ledger_p50_ms']} ms, p99 {row['ledger_p99_ms']} ms),"
            f" ORM {row['orm_pairs_per_second']:>6.0f}/s, {row['ratio']} times"
            for row in outcome["figures"]
        ]
        broken = ", ".join(outcome["broken_invariants"]) or "none"
        return "\n".join([outcome["database"], *lines, f"broken invariants: {broken}"])
