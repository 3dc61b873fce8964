"""Staff rate a period again in the console."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from billing.admin import corrections as page
from billing.models import Correction, PriceVersion, Reservation
from billing.prices.card import PriceCard
from billing.prices.price import Quantities
from gateway_site.console import roles
from organization.models import AuditEvent
from tests.billing.corrections.priced_requests import A_DAY, UsedAt, add_card, first_day, settle_at
from tests.billing.factories import Customer, make_customer
from tests.gateway_site.console.factories import action_url, signed_in, someone

pytestmark = pytest.mark.one_database


@pytest.fixture
def staff(transactional_db: None) -> Client:
    return signed_in(get_user_model().objects.create_superuser("ada", password="x"))


@pytest.fixture
def customer(transactional_db: None) -> Customer:
    """Somebody who has paid $0.04 for two requests that should have cost a tenth."""
    customer = make_customer(credit=10**9)
    requests = [UsedAt(first_day() + timedelta(hours=hour), Quantities(prompt=100)) for hour in (5, 6)]
    settle_at([customer], add_card(PriceCard.flat(prompt=200_000_000, completion=0)), *requests)
    return customer


@pytest.fixture
def right(customer: Customer) -> PriceVersion:
    return add_card(PriceCard.flat(prompt=20_000_000, completion=0))


def filled(**values: str) -> dict[str, str]:
    period = {
        "starts_at": f"{first_day():%Y-%m-%d %H:%M}",
        "ends_at": f"{first_day() + A_DAY:%Y-%m-%d %H:%M}",
    }
    return {"asked": "yes", "charge_by": "in_force", "reason": "a digit too many", **period, **values}


def text_of(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def test_a_period_is_rated_again_after_its_figures_were_shown(
    staff: Client, customer: Customer, right: PriceVersion
) -> None:
    stranger = make_customer(credit=10**9)
    url = action_url(right, "rerate_period")
    assert "Charge by" in text_of(staff.get(url))

    review = text_of(staff.post(url, filled()))

    assert customer.organization.name in review
    assert stranger.organization.name not in review
    assert "2 of 2" in review
    for amount in ("$0.04", "$0.004", "$-0.036"):
        assert amount in review
    assert not Correction.objects.exists()
    staff.post(url, filled(confirmed="yes"))
    assert customer.account.settled_nanousd == 4_000_000
    correction = Correction.objects.get()
    assert (correction.actor, correction.reason) == ("ada", "a digit too many")
    assert AuditEvent.objects.get(action="correction.finish").actor_label == "ada"
    assert "-$0.04" in text_of(staff.get("/admin/billing/correction/"))
    assert "a digit too many" in text_of(staff.get(f"/admin/billing/correction/{correction.pk}/change/"))
    (first, _) = Reservation.objects.order_by("admitted_at")
    of_request = text_of(staff.get(f"/admin/billing/reservation/{first.pk}/change/"))
    assert "Charged before" in of_request
    assert "a digit too many" in of_request
    # Confirmed twice, the second changes nothing.
    staff.post(url, filled(confirmed="yes"))
    assert customer.account.settled_nanousd == 4_000_000


def test_the_version_of_the_page_can_be_charged_by(
    staff: Client, customer: Customer, right: PriceVersion
) -> None:
    free = add_card(PriceCard.flat(prompt=0, completion=0), valid_from=first_day() + 20 * A_DAY)

    staff.post(
        action_url(free, "rerate_period"),
        filled(confirmed="yes", charge_by="this", organization=customer.organization.name),
    )

    assert customer.account.settled_nanousd == 0
    assert Correction.objects.get().version == free


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"starts_at": "yesterday"}, "Enter a valid date/time."),
        ({"ends_at": "2000-01-01 00:00"}, "must begin before it ends"),
        ({"ends_at": "2999-01-01 00:00"}, "must not end in the future"),
        ({"organization": "nobody"}, "There is no organization"),
        ({"charge_by": "mine"}, "Select a valid choice"),
    ],
)
def test_a_form_that_cannot_be_meant_is_shown_again(
    staff: Client, customer: Customer, right: PriceVersion, values: dict[str, str], problem: str
) -> None:
    answer = staff.post(action_url(right, "rerate_period"), filled(confirmed="yes", **values))

    assert problem in text_of(answer)
    assert not Correction.objects.exists()


def test_more_than_a_page_waits_for_is_left_to_the_command(
    staff: Client, customer: Customer, right: PriceVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_REQUESTS", 1)

    answer = staff.post(action_url(right, "rerate_period"), filled(confirmed="yes"))

    assert "more than 1 requests" in text_of(answer)
    assert "python manage.py rerate gpt --from" in text_of(answer)
    assert not Correction.objects.exists()


@pytest.mark.parametrize("role", [roles.OPERATOR, roles.READER])
def test_who_may_not_move_money_cannot_rate_again(right: PriceVersion, role: str) -> None:
    client = signed_in(someone(role))

    assert client.get(action_url(right, "rerate_period")).status_code == 403
    assert client.post(action_url(right, "rerate_period"), filled(confirmed="yes")).status_code == 403
    assert not Correction.objects.exists()


def test_who_keeps_the_books_can(right: PriceVersion, customer: Customer) -> None:
    client = signed_in(someone(roles.BILLING))

    client.post(action_url(right, "rerate_period"), filled(confirmed="yes"))

    assert customer.account.settled_nanousd == 4_000_000
