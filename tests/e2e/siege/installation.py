"""
A gateway's database for the siege, made with the project's own commands in a process with its settings.

    python -m tests.e2e.siege.installation FAST_UPSTREAM FAULTY_UPSTREAM

It prints one JSON object: the keys and the console's password.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.benchmarks.gateway.setup import run_command
from tests.e2e.siege.stream_attacks import FAULTS

READER = "reader"
# Matches `^(a+)+$` in exponentially many steps, and then does not.
SLOW_NAME = "a" * 27 + "!"
MODELS = {"siege/fast": "mock-t16-r0", "siege/paced": "mock-t100-r50"}


def _add_backend(name: str, url: str) -> None:
    run_command("add_backend", name, "--kind", "openai", "--server", "openai", "--base-url", f"{url}/v1")


def _add_model(name: str, backend: str, upstream_id: str) -> None:
    prices = ["--prompt-price", "0.000001", "--completion-price", "0.000002"]
    sizes = ["--context-length", "4000000", "--max-output-length", "4096", "--tokenizer", "o200k_base"]
    run_command("add_model", name, "--backend", backend, "--upstream-id", upstream_id, *prices, *sizes)


def _customer(name: str, credit_usd: str | None) -> tuple[str, str]:
    """An organization with a key, and with credit if any: its id and the key."""
    owner = run_command("create_organization", name)["id"]
    if credit_usd is not None:
        run_command("grant_credit", owner, credit_usd)
    project = run_command("create_project", owner, "Load")["id"]
    return owner, run_command("create_project_key", project, SLOW_NAME)["value"]


def prepare(fast_url: str, faulty_url: str) -> dict[str, Any]:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    _add_backend("fast", fast_url)
    _add_backend("faulty", faulty_url)
    for name, upstream_id in MODELS.items():
        _add_model(name, "fast", upstream_id)
    _add_model("siege/flood", "faulty", "endless")
    for fault in FAULTS:
        _add_model(f"fault/{fault}", "faulty", fault)
    watched, attacker, poor = (
        _customer("Watched", "1000"),
        _customer("Attacker", "100000"),
        _customer("Poor", None),
    )
    return {
        "watched_key": watched[1],
        "key": attacker[1],
        "poor_key": poor[1],
        "admin_key": run_command("create_admin_key", attacker[0], "siege")["value"],
        "password": run_command("create_console_user", READER, "--role", "read-only")["password"],
    }


def main() -> None:
    import django

    django.setup()
    sys.stdout.write(f"{json.dumps(prepare(*sys.argv[1:]))}\n")


if __name__ == "__main__":
    main()
