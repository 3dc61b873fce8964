from __future__ import annotations

from typing import Any

from gateway_site.management.operator_command import OperatorCommand
from organization.audit import chain


class Command(OperatorCommand):
    help = "Check that no audit event was changed, removed or inserted by hand. Exits with 1 if one was."

    def perform(self, **options: Any) -> dict[str, Any]:
        found = chain.verify()
        return {
            "ok": not found.problems,
            "events": found.linked,
            "pending": found.pending,
            "head": found.head,
            "problems": [
                {"kind": problem.kind, "event_id": problem.event_id, "message": problem.sentence}
                for problem in found.problems
            ],
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        lines = [f"BROKEN from event {each['event_id']}: {each['message']}" for each in outcome["problems"]]
        lines.append(f"{outcome['events']} events are linked, {outcome['pending']} wait for it.")
        return "\n".join([*lines, f"Head of the chain: {outcome['events']} {outcome['head']}"])

    def complaint_about(self, outcome: dict[str, Any]) -> str | None:
        return None if outcome["ok"] else "The audit trail is not as the gateway wrote it."
