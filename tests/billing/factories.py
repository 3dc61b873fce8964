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
from billing.models import Account, PriceVersion, Reservation
from billing.prices.card import CardVersion, PriceCard
from billing.prices.price import Quantities
from organization.audit.trail import Actor
from organization.models import Organization, Project, ProjectKey

SOMEONE = Actor.command("tests")
# A nano-USD a token, so that amounts in tests are token counts.
PRICE = PriceCard.flat(prompt=1_000, cached=500, completion=1_000)
FREE = PriceCard.flat(prompt=0, completion=0)

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
            version=VERSION,
            # Which is what costs so much.
            bounds=Quantities(prompt=amount),
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


def version_of(card: PriceCard, model: str = "gpt") -> CardVersion:
    """A version of the card, stored once."""
    version = CardVersion(uuid.uuid5(uuid.NAMESPACE_OID, f"{model} {card.checksum}"), card)
    PriceVersion.objects.get_or_create(
        pk=version.id,
        defaults={
            "model": model,
            "valid_from": timezone.now(),
            "source": "tests",
            "checksum": card.checksum,
            "card_json": card.to_json(),
        },
    )
    return version


VERSION = CardVersion(uuid.uuid5(uuid.NAMESPACE_OID, f"gpt {PRICE.checksum}"), PRICE)


def make_customer(credit: int = 0) -> Customer:
    version_of(PRICE)
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
