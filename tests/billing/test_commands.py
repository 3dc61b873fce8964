"""What an operator types."""

from __future__ import annotations

import json
import uuid
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from billing.ledger.ledger import Ledger
from billing.ledger.operations import Hold, MarkUnknown, Settle
from billing.models import Account, CreditGrant, SpendingCap
from organization.models import AuditEvent
from tests.billing.factories import Customer, reservation, used


def run(*arguments: Any, **options: Any) -> dict[str, Any]:
    """A command's JSON."""
    out = StringIO()
    call_command(*map(str, arguments), "--json", stdout=out, **options)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def said(*arguments: Any) -> str:
    out = StringIO()
    call_command(*map(str, arguments), stdout=out)
    return out.getvalue()


def unknown(ledger: Ledger, customer: Customer) -> Hold:
    hold = ledger.call(customer.request(100))
    assert isinstance(hold, Hold)
    ledger.call(MarkUnknown(hold.id, hold.organization_id))
    return hold


def test_credit_is_granted_by_name_and_by_id(acme: Customer) -> None:
    by_id = run("grant_credit", acme.organization.pk, "2.5", "--reason", "welcome")
    by_name = run("grant_credit", acme.organization.name, "1")

    assert by_id["usd"] == "2.5"
    assert by_id["available_usd"] == "2.500001"
    assert by_name["available_usd"] == "3.500001"
    event = AuditEvent.objects.filter(action="credit.grant").latest("id")
    assert event.details == {"usd": "1", "reason": "", "reference": ""}
    assert event.actor_label == "manage.py grant_credit"


def test_a_reference_is_granted_once(acme: Customer) -> None:
    first = run("grant_credit", acme.organization.pk, "5", "--reference", "inv-1")
    again = run("grant_credit", acme.organization.pk, "5", "--reference", "inv-1")

    assert (first["created"], again["created"]) == (True, False)
    assert first["id"] == again["id"]
    assert CreditGrant.objects.filter(reference="inv-1").count() == 1
    with pytest.raises(CommandError, match="was used for a grant of"):
        run("grant_credit", acme.organization.pk, "6", "--reference", "inv-1")


def test_credit_can_be_taken_back_down_to_what_is_left(ledger: Ledger, acme: Customer) -> None:
    ledger.call(acme.request(400))

    run("grant_credit", acme.organization.pk, "-0.0000006")
    with pytest.raises(CommandError, match=r"Only \$0 is left"):
        run("grant_credit", acme.organization.pk, "-0.000000001")

    assert Account.objects.get().granted_nanousd == 400


@pytest.mark.parametrize(
    ("amount", "complaint"),
    [("ten", "not an amount"), ("0.0000000001", "finer"), ("0", "nothing"), ("9999999999", "too large")],
)
def test_a_grant_that_makes_no_sense_is_refused_in_one_line(
    acme: Customer, amount: str, complaint: str
) -> None:
    with pytest.raises(CommandError, match=complaint) as refused:
        run("grant_credit", acme.organization.pk, amount)

    assert "\n" not in str(refused.value)


def test_an_organization_that_is_not_there_is_said_so(transactional_db: None) -> None:
    with pytest.raises(CommandError, match="no organization"):
        run("grant_credit", "nobody", "1")


@pytest.mark.parametrize("scope", ["organization", "project", "key"])
def test_a_limit_is_set_and_set_again(acme: Customer, scope: str) -> None:
    place = {"organization": acme.organization, "project": acme.project, "key": acme.key}[scope].pk

    for limit in ("5", "3"):
        answer = run("set_spending_limit", f"--{scope}={place}", limit, "--period=day")
        assert (answer["scope"], answer["period"], answer["limit_usd"]) == (scope, "day", limit)

    assert SpendingCap.objects.get().limit_nanousd == 3 * 10**9


def test_a_limit_needs_one_scope_and_a_period(acme: Customer) -> None:
    for wrong in (
        ("set_spending_limit", "5", "--period=day"),
        ("set_spending_limit", f"--project={acme.project.pk}", f"--key={acme.key.pk}", "5", "--period=day"),
        ("set_spending_limit", f"--project={acme.project.pk}", "5", "--period=week"),
        ("set_spending_limit", f"--project={acme.project.pk}", "-5", "--period=day"),
    ):
        with pytest.raises(CommandError):
            run(*wrong)
    assert not SpendingCap.objects.exists()


def test_an_unknown_reservation_is_settled(ledger: Ledger, acme: Customer) -> None:
    hold = unknown(ledger, acme)

    answer = run("resolve_reservation", hold.id, "--amount", "0.00000004")

    assert answer == {
        "id": str(hold.id),
        "state": "settled",
        "charged_usd": "0.00000004",
        "operator_loss_usd": "0",
    }
    with pytest.raises(CommandError, match="is settled"):
        run("resolve_reservation", hold.id, "--amount", "0.00000004")


def test_an_unknown_reservation_is_written_off(ledger: Ledger, acme: Customer) -> None:
    hold = unknown(ledger, acme)

    assert run("resolve_reservation", hold.id, "--write-off")["state"] == "written_off"
    assert run("resolve_reservation", unknown(ledger, acme).id, "--release")["state"] == "released"
    with pytest.raises(CommandError, match="not allowed with"):
        run("resolve_reservation", hold.id, "--write-off", "--amount=1")
    with pytest.raises(CommandError, match="no reservation"):
        run("resolve_reservation", uuid.uuid4(), "--write-off")


def test_sweeping_twice_is_safe(ledger: Ledger, acme: Customer) -> None:
    ledger.call(acme.request(100))

    nothing = {
        "released": 0,
        "settled": 0,
        "unknown": 0,
        "unknown_released": 0,
        "operator_loss_usd": "0",
    }
    assert run("sweep_reservations") == run("sweep_reservations") == nothing


def test_the_audit_names_each_invariant_with_its_count(ledger: Ledger, acme: Customer) -> None:
    hold = ledger.call(acme.request(100))
    assert isinstance(hold, Hold)
    ledger.call(Settle(hold.id, hold.organization_id, used(10)))

    answer = run("audit_ledger")

    assert answer["ok"] is True
    assert answer["broken"] == []
    assert set(answer["invariants"].values()) == {0}
    assert {"granted_equals_grants", "rollup_equals_lines", "nothing_orphaned"} <= set(answer["invariants"])
    assert "invariants checked" in said("audit_ledger")


COPY_LINES = """
INSERT INTO billing_costline
    (reservation_id, organization_id, project_id, api_key_id, admitted_at, revision, day, line_item, quantity,
     amount_nanousd)
SELECT reservation_id, organization_id, project_id, api_key_id, admitted_at, revision, {}, 'gpt, twice', 0, {}
FROM billing_costline
"""
BREAKAGES = {
    "granted_equals_grants": "UPDATE billing_account SET granted_nanousd = granted_nanousd + 1",
    "held_equals_open_reservations": "UPDATE billing_account SET held_nanousd = held_nanousd + 1",
    "settled_equals_charges": "UPDATE billing_account SET settled_nanousd = settled_nanousd + 1",
    "caps_mirror_reservations": "UPDATE billing_capperiod SET held_nanousd = held_nanousd + 1",
    "meters_mirror_holds": "UPDATE billing_keymeter SET live_holds = live_holds + 1",
    "nothing_orphaned": "UPDATE billing_reservation SET lease_expires_at = '2020-01-01 00:00:00'"
    " WHERE state = 'held'",
    "rollup_equals_lines": "UPDATE billing_unrolledcost SET amount_nanousd = amount_nanousd + 1",
    "reservations_belong_together": "UPDATE billing_reservation SET project_id = organization_id"
    " WHERE state = 'held'",
    "lines_belong_to_their_request": COPY_LINES.format("'2020-01-01'", 0),
    "lines_equal_charge": COPY_LINES.format("day", 1),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_the_audit_finds_what_is_broken_and_fails(ledger: Ledger, acme: Customer, name: str) -> None:
    acme.limit("key", "total", 900)
    for keep in (True, False):
        hold = ledger.call(acme.request(100))
        assert isinstance(hold, Hold)
        if not keep:
            ledger.call(Settle(hold.id, hold.organization_id, used(10)))
    out = StringIO()

    with rolled_back():
        with connection.cursor() as cursor:
            cursor.execute(BREAKAGES[name])
        with pytest.raises(CommandError, match="broken") as failed:
            call_command("audit_ledger", "--json", stdout=out)

    assert failed.value.returncode == 1
    answer = json.loads(out.getvalue())
    assert answer["ok"] is False
    assert answer["invariants"][name] > 0
    assert name in [each["name"] for each in answer["broken"]]
    assert isinstance(hold, Hold)
    assert reservation(hold).state == "settled"


class rolled_back:
    """A transaction whose changes are never seen again."""

    def __enter__(self) -> None:
        from django.db import transaction

        self.block = transaction.atomic()
        self.block.__enter__()

    def __exit__(self, *arguments: Any) -> None:
        connection.set_rollback(True)
        self.block.__exit__(None, None, None)
