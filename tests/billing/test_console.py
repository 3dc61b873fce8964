"""What staff see and do in the console."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from billing.ledger.ledger import Ledger
from billing.ledger.operations import Hold, MarkUnknown, Settle
from billing.models import Account, CreditGrant, SpendingCap
from organization.models import AuditEvent
from tests.billing.factories import Customer, reservation, used


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
    url = f"/admin/billing/reservation/{unknown.id}/do/settle/"
    assert b"Settle at" in staff.get(url).content

    review = staff.post(url, {"asked": "yes", "cost": "0.00000006"})
    assert b"Charged to the customer" in review.content
    assert reservation(unknown).state == "unknown"
    staff.post(url, {"asked": "yes", "confirmed": "yes", "cost": "0.00000006"})

    assert reservation(unknown).charged_nanousd == 60
    assert b"/do/settle/" not in staff.get(f"/admin/billing/reservation/{unknown.id}/change/").content


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
    chooser = "/admin/billing/creditgrant/add/"
    assert staff.get(chooser).status_code == 200
    assert b"There is no organization" in staff.get(chooser, {"organization": "nobody"}).content

    url = staff.get(chooser, {"organization": acme.organization.name}).headers["Location"]
    form = {"usd": "2", "reason": "paid", "reference": "", "form_id": "once", "asked": "yes"}
    review = staff.post(url, form)
    assert b"Available afterwards" in review.content
    assert acme.available == 1_000
    wrong = staff.post(url, {**form, "usd": "two", "confirmed": "yes"})
    assert b"not an amount" in wrong.content
    for _ in range(2):  # a form that is sent twice grants once
        staff.post(url, {**form, "confirmed": "yes"})

    assert acme.available == 2 * 10**9 + 1_000
    assert AuditEvent.objects.filter(action="credit.grant", actor_label="ada").count() == 1


def test_credit_is_granted_from_the_account_and_taken_back(staff: Client, acme: Customer) -> None:
    url = f"/admin/billing/account/{acme.organization.pk}/do/grant_credit/"
    sure = {"reason": "", "reference": "INV-1", "form_id": "x", "asked": "yes", "confirmed": "yes"}

    staff.post(url, {**sure, "usd": "2"})
    refused = staff.post(url, {**sure, "usd": "-3", "reference": ""}, follow=True)
    staff.post(url, {**sure, "usd": "-2", "reference": ""})

    assert b"is left to take back" in refused.content
    assert acme.available == 1_000
    assert b"INV-1" in staff.get(f"/admin/billing/account/{acme.organization.pk}/change/").content


def test_a_limit_is_set_changed_and_removed(staff: Client, ledger: Ledger, acme: Customer) -> None:
    hold = ledger.call(acme.request(60))
    assert isinstance(hold, Hold)
    url = f"/admin/organization/projectkey/{acme.key.pk}/do/set_limit/"
    sure = {"asked": "yes", "confirmed": "yes"}

    review = staff.post(url, {"period": "day", "limit": "0.00000005", "asked": "yes"})
    assert b"$0.00000006" in review.content  # used already
    assert b"used up" in review.content
    assert not SpendingCap.objects.exists()
    staff.post(url, {"period": "day", "limit": "5", **sure})
    cap = SpendingCap.objects.get()
    assert (cap.scope, cap.limit_nanousd, cap.organization) == ("key", 5 * 10**9, acme.organization)

    change = f"/admin/billing/spendingcap/{cap.pk}/do/change_limit/"
    review = staff.post(change, {"limit": "4", "asked": "yes"})
    assert b"$5.00" in review.content
    assert b"$4.00" in review.content
    staff.post(change, {"limit": "4", **sure})
    cap.refresh_from_db()
    assert cap.limit_nanousd == 4 * 10**9
    assert AuditEvent.objects.latest("id").details["before"] == {"usd": "5"}

    gone = staff.post(f"/admin/billing/spendingcap/{cap.pk}/do/remove/", {"confirmed": "yes"})
    assert gone.headers["Location"] == "/admin/billing/spendingcap/"
    assert not SpendingCap.objects.exists()


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [({"limit": "-1"}, "not negative"), ({"limit": "x"}, "not an amount"), ({"limit": ""}, "required")],
)
def test_a_limit_that_cannot_be_is_refused(
    staff: Client, acme: Customer, fields: dict[str, str], complaint: str
) -> None:
    url = f"/admin/organization/project/{acme.project.pk}/do/set_limit/"

    answer = staff.post(url, {"period": "day", "asked": "yes", "confirmed": "yes", **fields})

    assert complaint in answer.content.decode()
    assert not SpendingCap.objects.exists()
