"""A customer with credit, and the requests it makes."""

from __future__ import annotations

import itertools
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

from django.utils import timezone
from msgspec import structs

from billing import services
from billing.ledger.operations import Hold, HoldRequest
from billing.models import Account, Reservation
from billing.prices.price import Price, Quantities
from organization.audit.trail import Actor
from organization.models import Organization, Project, ProjectKey

SOMEONE = Actor.command("tests")
# A nano-USD a token, so that amounts in tests are token counts.
PRICE = Price(prompt=1_000, cached=500, completion=1_000)
FREE = Price()

_numbers = itertools.count()


@dataclass
class Customer:
    organization: Organization
    project: Project
    key: ProjectKey

    @property
    def account(self) -> Account:
        return Account.objects.get(pk=self.organization.pk)

    @property
    def available(self) -> int:
        return self.account.available_nanousd

    def request(self, amount: int = 100, **options: Any) -> HoldRequest:
        request = HoldRequest(
            request_id=uuid.uuid4(),
            organization_id=self.organization.pk,
            project_id=self.project.pk,
            key_id=self.key.pk,
            amount_nanousd=amount,
            model="gpt",
            price=PRICE,
        )
        return structs.replace(request, **options)

    def grant(self, amount: int) -> None:
        services.grant_credit(organization=self.organization, amount_nanousd=amount, actor=SOMEONE)

    def limit(self, scope: str, period: str, amount: int) -> None:
        things: dict[str, services.SpendingScope] = {
            "organization": self.organization,
            "project": self.project,
            "key": self.key,
        }
        services.set_spending_limit(scope=things[scope], period=period, limit_nanousd=amount, actor=SOMEONE)

    def another_key(self) -> Customer:
        return replace(self, key=make_key(self.project))


def make_key(project: Project) -> ProjectKey:
    unique = uuid.uuid4().hex
    return ProjectKey.objects.create(project=project, name="app", digest=unique, redacted_value=unique[:8])


def make_customer(credit: int = 0) -> Customer:
    organization = Organization.objects.create(name=f"Customer {next(_numbers)} {uuid.uuid4().hex}")
    project = Project.objects.create(organization=organization, name="Web")
    customer = Customer(organization, project, make_key(project))
    if credit:
        customer.grant(credit)
    return customer


def reservation(hold: Hold) -> Reservation:
    return Reservation.objects.get(pk=hold.id)


def used(tokens: int) -> Quantities:
    """That costs `tokens` nano-USD at PRICE."""
    return Quantities(prompt=tokens)


def stay_within_a_minute() -> None:
    """Rates are counted by the minute of the clock: one that ends in the middle would rightly admit more."""
    left = 60 - timezone.now().second
    if left <= 3:
        time.sleep(left)
