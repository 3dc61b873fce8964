"""What staff do in the console about requests whose outcome nobody knows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from billing.ledger.ledger import Ledger
from billing.ledger.operations import Hold, MarkUnknown, Settle
from billing.models import EndedBy, Reservation
from organization.models import AuditEvent
from tests.billing.factories import Customer, make_customer, reservation, used
from tests.billing.reservation_services.factories import make_unknown

LIST = "/admin/billing/reservation/"


@pytest.fixture
def staff(transactional_db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def ask(staff: Client, action: str, holds: list[Hold], query: str = "", **extra: str) -> Any:
    """Choose these rows in the list and start an action: its confirmation page."""
    chosen = [str(hold.id) for hold in holds]
    return staff.post(f"{LIST}?{query}", {"action": action, "_selected_action": chosen, **extra})


def confirm(staff: Client, asked: Any, query: str = "") -> str:
    """Press the button of a confirmation page, with all that it has in hidden fields. What is said then."""
    fields: dict[str, Any] = {"confirmed": "yes", "asked": "yes"}
    for name, value in asked.context["hidden"]:
        fields.setdefault(name, []).append(value)
    fields["seen_until"] = asked.context["form"]["seen_until"].value()
    answer = staff.post(f"{LIST}?{query}", fields, follow=True)
    return " ".join(str(message) for message in answer.context["messages"])


def test_chosen_reservations_are_released_after_a_page_that_counts_them(
    staff: Client, ledger: Ledger, acme: Customer
) -> None:
    holds = make_unknown(ledger, acme, 3)

    asked = ask(staff, "release", holds)
    assert dict(asked.context["summary"])["Unknown outcomes"] == 3
    assert "$0.0000003" in str(dict(asked.context["summary"])["Held for them"])
    assert b"no loss is recorded" in asked.content
    assert acme.available == 700
    told = confirm(staff, asked)

    assert "Release: 3 released." in told
    assert acme.available == 1_000
    event = AuditEvent.objects.get(action="reservations.release")
    assert (event.actor_label, event.details["count"]) == ("ada", 3)


def test_what_was_seen_is_charged_and_the_message_says_how_many_had_nothing(
    staff: Client, ledger: Ledger, acme: Customer
) -> None:
    holds = make_unknown(ledger, acme, 2, seen=30) + make_unknown(ledger, acme)
    running = ledger.call(acme.request(100))
    assert isinstance(running, Hold)

    asked = ask(staff, "charge_observed", [*holds, running])
    rows = dict(asked.context["summary"])
    assert rows["With usage to charge"] == "2, $0.00000006"
    assert rows["Left alone, because they are not unknown"] == 1
    told = confirm(staff, asked)

    assert "3 resolved; 2 charged $0.00000006 in all; 1 had nothing to charge" in told
    assert "1 left alone" in told
    assert reservation(running).state == "held"
    assert acme.available == 1_000 - 60 - 100


@pytest.mark.slow
def test_all_that_the_filter_matches_are_chosen_and_no_stranger_and_no_later_one(
    staff: Client, ledger: Ledger, acme: Customer
) -> None:
    acme.grant(100_000)
    stranger = make_customer(credit=1_000)
    (theirs,) = make_unknown(ledger, stranger)
    holds = make_unknown(ledger, acme, 130)
    query = f"state=unknown&organization__id__exact={acme.organization.pk}"

    asked = ask(staff, "write_off", holds[:1], query, select_across="1")
    assert dict(asked.context["summary"])["Unknown outcomes"] == 130
    assert "and 110 more." in asked.content.decode()
    (later,) = make_unknown(ledger, acme)
    told = confirm(staff, asked, query)

    assert "130 written off" in told
    assert Reservation.objects.filter(state="written_off").count() == 130
    assert reservation(theirs).state == reservation(later).state == "unknown"


def test_rows_that_are_named_are_at_most_a_hundred(
    staff: Client, ledger: Ledger, acme: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_site.console.kit.actions.MOST_ROWS", 2)
    holds = make_unknown(ledger, acme, 3)

    refused = ask(staff, "release", holds, confirmed="yes")

    assert "Choose 2 rows at most." in staff.get(refused.headers["Location"]).content.decode()
    assert acme.available == 700


def test_what_ended_while_people_were_asked_is_left_as_it_is(
    staff: Client, ledger: Ledger, acme: Customer
) -> None:
    first, second = make_unknown(ledger, acme, 2)
    asked = ask(staff, "write_off", [first, second])
    ledger.call(Settle(first.id, first.organization_id, used(40)))

    told = confirm(staff, asked)

    assert "1 of what you chose left this list meanwhile" in told
    assert "1 written off" in told
    assert (reservation(first).state, reservation(second).state) == ("settled", "written_off")


def test_a_person_who_may_only_look_cannot_resolve(ledger: Ledger, acme: Customer) -> None:
    holds = make_unknown(ledger, acme, 2)
    person = User.objects.create_user("eve", is_staff=True)
    person.user_permissions.add(Permission.objects.get(codename="view_reservation"))
    client = Client()
    client.force_login(person)

    assert client.get(LIST).status_code == 200
    for action in ("release", "charge_observed", "write_off", "settle"):
        assert ask(client, action, holds, confirmed="yes", select_across="1").status_code == 403
        assert client.post(f"{LIST}{holds[0].id}/do/{action}/", {"confirmed": "yes"}).status_code == 403
    assert acme.available == 800


def test_the_page_says_who_ended_it_and_when_it_resolves_by_itself(
    staff: Client, ledger: Ledger, acme: Customer
) -> None:
    hold = ledger.call(acme.request(100))
    assert isinstance(hold, Hold)
    ledger.call(MarkUnknown(hold.id, hold.organization_id, EndedBy.DEADLINE))
    Reservation.objects.update(unknown_at=timezone.now() - timedelta(minutes=2, seconds=30))

    shown = staff.get(f"{LIST}{hold.id}/change/").content.decode()

    assert "The deadline passed before the end: what the backend did by then is not known" in shown
    assert "in 7 min" in shown
    assert "in 7 min" in staff.get(LIST).content.decode()


def test_only_open_reservations_are_narrowed_to_an_organization(
    staff: Client, ledger: Ledger, acme: Customer
) -> None:
    make_unknown(ledger, acme)
    mine = f"organization__id__exact={acme.organization.pk}"

    assert staff.get(f"{LIST}?{mine}").context["cl"].result_count == 1
    ended = staff.get(f"{LIST}?{mine}&state=settled")
    assert ended.context["cl"].result_count == 0
    assert "Only open reservations are found by organization" in ended.content.decode()
