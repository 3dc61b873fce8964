from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gateway_site.doctor import examine
from gateway_site.management.operator_command import OperatorCommand


class Command(OperatorCommand):
    help = "Check what the gateway stands on; exits with 1 if something is wrong."
    requires_system_checks = []

    def perform(self, **options: Any) -> dict[str, Any]:
        findings = examine()
        return {
            "healthy": all(finding.is_good for finding in findings),
            "findings": [asdict(finding) for finding in findings],
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        return "\n".join(
            f"{'ok   ' if finding['is_good'] else 'WRONG'}  {finding['subject']:15} {finding['sentence']}"
            for finding in outcome["findings"]
        )

    def complaint_about(self, outcome: dict[str, Any]) -> str | None:
        return None if outcome["healthy"] else "Something is wrong; see above."
