"""
A gateway's database outside of the test's own, so that it can be taken away.

    python -m tests.e2e.outages.database make    migrates, and prints the credentials of one of each kind
    python -m tests.e2e.outages.database audit   decides what was left open; fails if the books do not balance
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import django

from tests.harness.live_server import ROOT


def run(what: str, environment: dict[str, str]) -> Any:
    """The same from another process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.outages.database", what],
        cwd=ROOT,
        env={**environment, "DJANGO_SETTINGS_MODULE": "gateway_site.settings", "LOG_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def make() -> dict[str, str]:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)

    from billing.ledger.ledger import close_ledger
    from organization import services
    from tests.factories import SOMEONE, make_admin_key
    from tests.gateway_site.console.clients import owner
    from tests.inference.customer import ApiCustomer

    organization, _ = services.create_organization(name="Acme", actor=SOMEONE)
    project, _ = services.create_project(organization=organization, name="Web", actor=SOMEONE)
    customer = ApiCustomer.of(project)
    customer.simulate("simulator/echo")
    customer.simulate("simulator/paced-120x10")
    close_ledger(5)
    return {
        "customer": customer.value,
        "admin": make_admin_key(organization).value,
        "session": owner().cookies["sessionid"].value,
    }


def audit() -> dict[str, int]:
    from billing.ledger.ledger import close_ledger
    from billing.models import Reservation
    from tests.harness.ledger_checks import decide_everything

    decide_everything()
    close_ledger(5)
    return {state: Reservation.objects.filter(state=state).count() for state in ("held", "settled")}


if __name__ == "__main__":
    django.setup()
    sys.stdout.write(json.dumps(make() if sys.argv[1] == "make" else audit()))
    from django.db import connection

    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
