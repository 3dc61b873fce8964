"""
A gateway's database, made and looked at with the project's own commands, in a process with its settings.

    python -m tests.benchmarks.gateway.setup prepare UPSTREAM ORGANIZATIONS MODEL...
    python -m tests.benchmarks.gateway.setup books

Each prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from io import StringIO
from typing import Any

CREDIT_USD = "1000000"


def run_command(*words: str) -> dict[str, Any]:
    from django.core.management import CommandError, call_command

    out = StringIO()
    try:
        call_command(*words, "--json", stdout=out)
    except CommandError:
        # The audit ends so where it finds something, after it has said what.
        if not out.getvalue():
            raise
    outcome: dict[str, Any] = json.loads(out.getvalue())
    return outcome


def prepare(upstream: str, organizations: int, models: Sequence[str]) -> dict[str, Any]:
    """Keys, one for each of so many organizations with credit, and the models behind one backend."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    # Named, because what a server of unknown kind does with a connection is not known either, and every
    # request would get a new one.
    run_command(
        "add_backend", "mock", "--kind", "openai", "--server", "openai", "--base-url", f"{upstream}/v1"
    )
    for model in models:
        prices = ["--prompt-price", "0.000001", "--completion-price", "0.000002"]
        sizes = ["--context-length", "128000", "--max-output-length", "4096", "--tokenizer", "o200k_base"]
        run_command("add_model", model, "--backend", "mock", *prices, *sizes)
    keys = []
    for number in range(organizations):
        owner = run_command("create_organization", f"Bench {number}")["id"]
        run_command("grant_credit", owner, CREDIT_USD)
        project = run_command("create_project", owner, "Load")["id"]
        keys.append(run_command("create_project_key", project, "load")["value"])
    return {"keys": keys}


def books() -> dict[str, Any]:
    """How requests ended, and whether the ledger is right."""
    from django.db.models import Count, Sum

    from billing.models import Reservation
    from inference.models import Activity

    states = Reservation.objects.values_list("state", "basis").annotate(count=Count("id"))
    charged = Reservation.objects.aggregate(sum=Sum("charged_nanousd"))["sum"] or 0
    return {
        "reservations": {f"{state} {basis}".strip(): count for state, basis, count in states},
        "charged_nanousd": charged,
        "activity_rows": Activity.objects.count(),
        "audit": run_command("audit_ledger"),
    }


def main() -> None:
    import django

    django.setup()
    wants_books = sys.argv[1] == "books"
    outcome = books() if wants_books else prepare(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    sys.stdout.write(f"{json.dumps(outcome)}\n")


if __name__ == "__main__":
    main()
