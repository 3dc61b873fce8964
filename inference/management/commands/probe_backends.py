from __future__ import annotations

from typing import Any

from gateway_site.management.operator_command import OperatorCommand
from inference.catalog.probes import probe


class Command(OperatorCommand):
    help = "Test the connection to every enabled backend; exits with 1 if one fails."

    def perform(self, **options: Any) -> dict[str, Any]:
        findings = [
            {
                "name": finding.backend.name,
                "kind": finding.backend.kind,
                "base_url": finding.backend.base_url,
                "is_ready": not finding.problem,
                "problem": finding.problem,
            }
            for finding in probe()
        ]
        return {"ready": all(each["is_ready"] for each in findings), "backends": findings}

    def describe(self, outcome: dict[str, Any]) -> str:
        if not outcome["backends"]:
            return "There is no enabled backend; see `add_backend`."
        return "\n".join(
            f"{'ok   ' if each['is_ready'] else 'WRONG'}  {each['name']:20} {each['problem'] or 'answers'}"
            for each in outcome["backends"]
        )

    def complaint_about(self, outcome: dict[str, Any]) -> str | None:
        return None if outcome["ready"] else "Something is wrong; see above."
