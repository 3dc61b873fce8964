"""One row of everything that the console has a page for, named as one likes, and people with roles."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.apps import apps
from django.contrib.admin import site
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from billing import services as billing_services
from billing.ledger import batch
from billing.ledger.operations import Hold, LedgerLimits, MarkUnknown, Operation, Settle
from billing.models import (
    Account,
    Correction,
    CostLine,
    CreditGrant,
    LedgerAudit,
    PriceVersion,
    Reservation,
    SpendingCap,
)
from billing.prices.price import Quantities
from gateway_site.console import roles, users
from gateway_site.console.kit.actions import Action, actions_of
from inference.catalog import services as inference_services
from inference.models import Activity, Backend, CatalogModel, PassedCheck
from organization import services
from organization.models import AdminKey, AuditEvent, Organization, Project, ProjectKey
from policies import services as policy_services
from policies.models import DailyVerdicts, Policy, PolicyVersion, Verdict
from tests.billing.factories import Customer
from tests.factories import SOMEONE
from tests.inference.activity.factories import make_request
from tests.policies.factories import verdict

USD = 10**9
PERIOD = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
NEVER_PROBED = "http://127.0.0.1:9/v1"


@dataclass(frozen=True)
class SampleRows:
    customer: Customer
    rows: dict[type[Model], Any]

    def __getitem__(self, model: type[Model]) -> Any:
        return self.rows[model]


def make_sample_rows(name: str = "Acme", words: str = "Internal") -> SampleRows:
    """Everything once, called `name` where it has a name; `words` where it has text."""
    organization, _ = services.create_organization(name=name, actor=SOMEONE)
    project, _ = services.create_project(organization=organization, name=name, actor=SOMEONE)
    key = services.create_project_key(project=project, name=name, actor=SOMEONE).key
    customer = Customer(organization, project, key)
    admin_key = services.create_admin_key(organization=organization, name=name, actor=SOMEONE).key
    grant, _ = billing_services.grant_credit(
        organization=organization, amount_nanousd=5 * USD, reason=words, reference=words, actor=SOMEONE
    )
    cap = billing_services.set_spending_limit(scope=key, period="day", limit_nanousd=2 * USD, actor=SOMEONE)
    unknown = leave_unknown(customer)
    settle(customer, 10)
    policy = make_policy(organization, name[:80], words)
    version = policy.current_version
    assert version is not None
    Verdict.objects.bulk_create([verdict(policy, project, 0.9)])
    DailyVerdicts.objects.create(day="2026-01-01", version=version, matches=1)
    rows: list[Any] = [organization, project, key, admin_key, grant, grant.account, cap, policy, version]
    rows += [unknown, CostLine.objects.latest("id"), Verdict.objects.latest("id")]
    rows += make_models(organization, name)
    rows += [
        make_request(key, model=name),
        LedgerAudit.objects.create(seconds=0.1, broken=0),
        Correction.objects.create(
            model=name, starts_at=PERIOD[0], ends_at=PERIOD[1], reason=words[:500], actor=name[:250]
        ),
        AuditEvent.objects.latest("id"),
        User.objects.create_user(f"guest {name}"[:150], is_staff=True),
    ]
    roles.apply(apps)
    rows.append(Group.objects.get(name=roles.READER))
    return SampleRows(customer, {type(row): row for row in rows})


def make_policy(organization: Organization, name: str, words: str) -> Policy:
    """Published once and edited since."""
    policy = policy_services.create_policy(
        organization=organization, name=name, rule=f'Does it say "{words}"?', description=words, actor=SOMEONE
    )
    policy = policy_services.publish_policy(policy=policy, actor=SOMEONE)
    return policy_services.edit_policy(
        policy=policy, revision=policy.revision, changes={"rule": f"{words}?"}, actor=SOMEONE
    )


def make_models(organization: Organization, name: str) -> list[Any]:
    backend, _ = inference_services.save_backend(
        name=name, kind="openai", base_url=NEVER_PROBED, options={}, actor=SOMEONE
    )
    model, _ = inference_services.save_model(
        model_id=name.replace(" ", "").replace("/", "").replace("<", "%3C")[:100] or "m",
        changes={"display_name": name},
        prices={"prompt": 1_000, "completion": 2_000},
        actor=SOMEONE,
    )
    inference_services.save_deployment(model=model, backend=backend, upstream_id=name, actor=SOMEONE)
    Backend.objects.filter(pk=backend.pk).update(probe_problem=name)
    passed = inference_services.pass_check(organization=organization, check_name=name, actor=SOMEONE)
    return [backend, model, model.price_version, passed]


def run(*operations: Operation) -> list[Any]:
    """What the ledger's thread would do, in this test's own transaction."""
    with transaction.atomic():
        finish = batch.apply(batch.store_over(connection), list(operations), LedgerLimits())
    return list(finish().answers)


def leave_unknown(customer: Customer, amount: int = 100) -> Reservation:
    (hold,) = run(customer.request(amount))
    assert isinstance(hold, Hold)
    run(MarkUnknown(hold.id, hold.organization_id))
    return Reservation.objects.get(pk=hold.id)


def settle(customer: Customer, tokens: int) -> None:
    (hold,) = run(customer.request(tokens))
    assert isinstance(hold, Hold)
    run(Settle(hold.id, hold.organization_id, Quantities(prompt=tokens)))


# --- people and pages ---------------------------------------------------------------------------------


def someone(role: str, name: str = "") -> User:
    made = users.create_user(username=name or f"person {uuid.uuid4()}", role=role, actor=SOMEONE)
    return made.user


def signed_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(row: Any, kind: str = "change", *more: str) -> str:
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}_{kind}"
    return reverse(name, args=[quote(row.pk), *more])


def list_url(model: Any, kind: str = "changelist") -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{kind}")


def action_url(row: Any, action: str) -> str:
    return page(row, "do", action)


def every_action() -> list[tuple[type[Model], Action]]:
    """Whatever can be done anywhere in the console."""
    return [
        (model, action)
        for model, its_page in site._registry.items()
        if hasattr(its_page, "all_actions")
        for action in actions_of(its_page).values()
    ]


# What the forms of actions are filled with; the others ask nothing.
FORMS: dict[str, dict[str, str]] = {
    "grant_credit": {"usd": "1.5", "reason": "paid", "reference": "", "form_id": "f"},
    "set_limit": {"period": "month", "limit": "7"},
    "change_limit": {"limit": "3"},
    "settle": {"cost": "0.00000005"},
    "publish": {"mode": "monitoring", "seen_revision": ""},
    "sync": {"before_ids": ""},
    "rerate_period": {
        "starts_at": "2026-01-01 00:00",
        "ends_at": "2026-01-02 00:00",
        "charge_by": "in_force",
        "organization": "",
        "reason": "",
    },
    "change_role": {"role": roles.BILLING},
}
CONFIRMED = {"confirmed": "yes", "asked": "yes"}


def form_of(action: Action) -> dict[str, str]:
    return {**FORMS.get(action.name, {}), **CONFIRMED}


MODELS = [
    Organization,
    Project,
    ProjectKey,
    AdminKey,
    AuditEvent,
    Account,
    CreditGrant,
    SpendingCap,
    Reservation,
    CostLine,
    LedgerAudit,
    Correction,
    Policy,
    PolicyVersion,
    Verdict,
    Backend,
    CatalogModel,
    PriceVersion,
    PassedCheck,
    Activity,
    User,
    Group,
]
