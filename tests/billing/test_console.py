"""What staff see and do in the console."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from billing.ledger import Ledger
from billing.models import Account, CreditGrant, Reservation, SpendingCap
from billing.operations import Hold, MarkUnknown, Settle
from organization.models import AuditEvent
from tests.billing.cast import Customer, reservation, used


@pytest.fixture
def staff(transactional_db: None) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada", password="x"))
    return client


@pytest.fixture
def unknown(ledger: Ledger, acme: Customer) -> Hold:
    hold = ledger.call(acme.request(100))
    assert isinstance(hold, Hold)
    ledger.call(MarkUnknown(hold.id, hold.organization_id))
    return hold


def act(staff: Client, hold: Hold, **extra: str) -> Any:
    return staff.post(
        "/admin/billing/reservation/", {"action": "write_off", "_selected_action": str(hold.id), **extra}
    )


@pytest.mark.parametrize("page", ["account", "creditgrant", "spendingcap", "reservation", "costline"])
def test_every_list_opens(staff: Client, ledger: Ledger, acme: Customer, unknown: Hold, page: str) -> None:
    acme.limit("key", "day", 900)
    hold = ledger.call(acme.request(10))
    assert isinstance(hold, Hold)
    ledger.call(Settle(hold.id, hold.organization_id, used(10)))

    answer = staff.get(f"/admin/billing/{page}/")

    assert answer.status_code == 200
    assert answer.context["cl"].result_count == 1


def test_reservations_are_the_open_ones_unless_asked(
    staff: Client, ledger: Ledger, acme: Customer, unknown: Hold
) -> None:
    done = ledger.call(acme.request(10))
    assert isinstance(done, Hold)
    ledger.call(Settle(done.id, done.organization_id, used(10)))

    def listed(query: str) -> list[Any]:
        return [row.pk for row in staff.get(f"/admin/billing/reservation/?{query}").context["cl"].result_list]

    assert listed("") == listed("state=unknown") == [unknown.id]
    assert listed("state=settled") == listed(f"q={done.id}") == [done.id]
    assert len(listed("state=all")) == 2
    assert listed("q=nonsense") == []


def test_writing_off_asks_first(staff: Client, acme: Customer, unknown: Hold) -> None:
    asked = act(staff, unknown)

    assert b"operator bears" in asked.content
    assert reservation(unknown).state == "unknown"

    act(staff, unknown, confirmed="yes")

    assert reservation(unknown).state == "written_off"
    assert acme.available == 1_000
    assert AuditEvent.objects.get(action="reservation.write_off").actor_label == "ada"


def test_an_unknown_reservation_is_settled_on_its_page(staff: Client, acme: Customer, unknown: Hold) -> None:
    url = f"/admin/billing/reservation/{unknown.id}/change/"
    assert b"Settle at" in staff.get(url).content

    staff.post(url, {"cost": "0.00000006"})

    assert reservation(unknown).charged_nanousd == 60
    assert b"Settle at" not in staff.get(url).content


def test_a_reservation_that_is_not_unknown_cannot_be_changed(
    staff: Client, ledger: Ledger, acme: Customer
) -> None:
    hold = ledger.call(acme.request(100))
    assert isinstance(hold, Hold)

    answer = staff.post(f"/admin/billing/reservation/{hold.id}/change/", {"cost": "0"})
    act(staff, hold, confirmed="yes")

    assert answer.status_code == 403
    assert reservation(hold).state == "held"


@pytest.mark.parametrize("page", ["account", "costline", "reservation"])
def test_nobody_can_add_to_the_ledger_by_hand(staff: Client, page: str) -> None:
    assert staff.get(f"/admin/billing/{page}/add/").status_code == 403


def test_nobody_can_edit_or_delete_the_ledger(
    staff: Client, ledger: Ledger, acme: Customer, unknown: Hold
) -> None:
    grant = CreditGrant.objects.get()
    for url in (
        f"/admin/billing/creditgrant/{grant.pk}/delete/",
        f"/admin/billing/reservation/{unknown.id}/delete/",
        f"/admin/billing/account/{acme.organization.pk}/delete/",
    ):
        assert staff.post(url, {"post": "yes"}).status_code == 403
    assert staff.post(f"/admin/billing/creditgrant/{grant.pk}/change/", {"usd": "1"}).status_code == 403
    assert Account.objects.get().granted_nanousd == 1_000


def test_credit_is_granted(staff: Client, acme: Customer) -> None:
    url = "/admin/billing/creditgrant/add/"
    assert staff.get(url).status_code == 200

    staff.post(url, {"organization": acme.organization.name, "usd": "2", "reason": "", "reference": ""})
    wrong = staff.post(url, {"organization": "nobody", "usd": "two", "reason": "", "reference": ""})

    assert acme.available == 2 * 10**9 + 1_000
    assert b"There is no organization" in wrong.content
    assert b"not an amount" in wrong.content


def test_a_limit_is_set_changed_and_removed(staff: Client, acme: Customer) -> None:
    url = "/admin/billing/spendingcap/add/"
    assert staff.get(url).status_code == 200
    inline = {"periods-TOTAL_FORMS": "0", "periods-INITIAL_FORMS": "0"}

    staff.post(url, {"api_key": str(acme.key.pk), "period": "day", "limit": "5", **inline})
    cap = SpendingCap.objects.get()
    assert (cap.scope, cap.limit_nanousd, cap.organization) == ("key", 5 * 10**9, acme.organization)

    staff.post(f"/admin/billing/spendingcap/{cap.pk}/change/", {"limit": "4", **inline})
    cap.refresh_from_db()
    assert cap.limit_nanousd == 4 * 10**9

    staff.post(
        "/admin/billing/spendingcap/",
        {"action": "remove", "_selected_action": str(cap.pk), "confirmed": "yes"},
    )
    assert not SpendingCap.objects.exists()
    assert not Reservation.objects.exists()
