"""
Processes that call the ledger on command: one line of JSON in, one out.

Run as a script it is one of them; `LedgerProcesses` starts four and speaks to them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections import Counter
from types import TracebackType
from typing import Any, Self

SIZE = 4
# What is asked of them is how many are admitted, and not how soon: on a busy machine a batch may stand behind
# another for longer than a customer would be made to wait.
PATIENCE_SECONDS = 60


class LedgerProcesses:
    def __init__(self) -> None:
        self._members: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            member.communicate()

    def ensure_started(self, environment: dict[str, str]) -> None:
        if not self._members:
            command = [sys.executable, "-m", "tests.billing.ledger_processes"]
            environment = {**environment, "GATEWAY_ADMISSION_WAIT_SECONDS": str(PATIENCE_SECONDS)}
            self._members = [
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
                )
                for _ in range(SIZE)
            ]
            self.receive()

    def send(self, order: dict[str, Any]) -> None:
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(json.dumps(order) + "\n")
            member.stdin.flush()

    def receive(self) -> list[dict[str, Any]]:
        """One answer from each."""
        answers = []
        for member in self._members:
            assert member.stdout is not None
            line = member.stdout.readline()
            assert line, "one of the processes has died"
            answers.append(json.loads(line))
        return answers

    def do(self, order: dict[str, Any]) -> Counter[str]:
        """The order from all at once: they get ready, say so, and start together."""
        self.send(order)
        self.receive()
        self.send({"do": "go"})
        return sum((Counter(answer) for answer in self.receive()), Counter())


# --- one of the processes -----------------------------------------------------------------------------


_ledgers: dict[str, Any] = {}


def main() -> None:
    import django

    django.setup()
    from billing.ledger import connection

    connection.SQLITE_BUSY_SECONDS = PATIENCE_SECONDS
    connection.LOCK_TIMEOUT_MS = connection.STATEMENT_TIMEOUT_MS = PATIENCE_SECONDS * 1000
    answer_with({})
    while line := sys.stdin.readline():
        asyncio.run(run_order(json.loads(line)))
    for ledger in _ledgers.values():
        ledger.close(5)


def answer_with(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def run_order(order: dict[str, Any]) -> None:
    from billing.ledger.ledger import Ledger
    from billing.ledger.operations import LedgerLimits

    # One for all orders of its kind, as a process has: to connect takes longer than to run an order.
    limits = order.get("limits", {})
    ledger = _ledgers.setdefault(json.dumps(limits), Ledger(LedgerLimits(**limits)))
    # Connected and warm before the start, so that all four really start together.
    await holds(ledger, {**order, "count": 1, "key_id": str(uuid.uuid4())})
    answer_with({})
    sys.stdin.readline()
    answer_with(await {"holds": holds, "hold_until_refused": hold_until_refused}[order["do"]](ledger, order))


async def holds(ledger: Any, order: dict[str, Any]) -> Counter[str]:
    return Counter(await asyncio.gather(*(hold(ledger, order) for _ in range(order["count"]))))


async def hold_until_refused(ledger: Any, order: dict[str, Any]) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    while True:
        found = await holds(ledger, order)
        outcomes += found
        if set(found) - {"admitted"}:
            return outcomes


async def hold(ledger: Any, order: dict[str, Any]) -> str:
    from billing.ledger.operations import HoldRequest
    from billing.prices.price import Quantities
    from gateway_site.api.errors import ApiError
    from tests.billing.factories import VERSION

    request = HoldRequest(
        request_id=uuid.uuid4(),
        organization_id=uuid.UUID(order["organization_id"]),
        project_id=uuid.UUID(order["project_id"]),
        key_id=uuid.UUID(order["key_id"]),
        amount_nanousd=order["amount"],
        model="gpt",
        version=VERSION,
        bounds=Quantities(completion=order["amount"]),
        choices=order.get("choices", 1),
    )
    try:
        await ledger.reserve(request)
    except ApiError as error:
        return error.code
    return "admitted"


if __name__ == "__main__":
    main()
