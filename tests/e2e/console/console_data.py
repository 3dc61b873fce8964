"""
What the browser finds in the console: a customer in the middle of its work, one that is out of credit, one
with names that attack whoever shows them, and requests of every outcome, made through the real pipeline.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.utils import timezone

from billing.corrections.requests import CorrectionScope
from billing.corrections.rerate import rerate
from billing.ledger.audits import audit_and_record
from billing.models import SpendingCap
from billing.money import parse_usd
from billing.prices.card import PriceCard
from billing.prices.versions import add_version
from billing.reports.rollup import roll_up
from billing.services import grant_credit, set_spending_limit
from gateway_site.console import roles
from inference.catalog import services as inference_services
from inference.models import Activity
from organization import services
from organization.models import NAME_LENGTH, Organization, Project, ProjectKey
from policies import services as policy_services
from policies.models import Policy, Verdict
from tests.e2e.waiting import until
from tests.factories import SOMEONE
from tests.inference.catalog.factories import deploy, make_backend, make_model

OPERATOR, PASSWORD = "ada", "correct horse battery"
HOSTILE = (
    "<script>window.pwned=1</script>",
    '"><img src=x onerror=window.pwned=1>',
    "';window.pwned=1;//</script><svg onload=window.pwned=1>",
    "{{7*7}}{% debug %}",
    "=HYPERLINK('http://outside.example','paid')",
)
RIGHT_TO_LEFT = "مشروع العملاء \u202eمتجر"
LONG = ("A name without any end " * 20)[: NAME_LENGTH - 1] + "."
UNBROKEN = "x" * NAME_LENGTH
PHRASE = "project nightingale"
RULE = f'Does the text contain "{PHRASE}"?'
SIMULATED = (
    "echo",
    "words",
    "thinker",
    "endless",
    "refusal",
    "filtered",
    "paced-400x40",
    "fails-500",
    "fails-busy",
    "fails-rejected",
    "fails-refused",
    "fails-reset",
    "fails-cut-midway",
    "usage-cached",
)
COLUMNS = {
    "tokenizer": "o200k_base",
    "context_length": 100_000,
    "max_output_length": 400,
    "prompt_price_picousd": 150_000,
    "completion_price_picousd": 600_000,
}
REQUEST_SECONDS = 20


@dataclass
class ConsoleData:
    """The rows that tests speak of by name, and the values of keys, which are nowhere else."""

    acme: Organization
    web: Project
    # Where nothing but the playground spends.
    play: Project
    poor: Organization
    values: dict[str, str] = field(default_factory=dict)
    keys: dict[str, ProjectKey] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)

    def add_key(self, name: str, project: Project | None = None, **options: Any) -> ProjectKey:
        made = services.create_project_key(project=project or self.web, name=name, actor=SOMEONE, **options)
        self.keys[name], self.values[name] = made.key, made.value
        return made.key


def create_console_data() -> ConsoleData:
    """Everything but the requests, which need a server."""
    acme, _ = services.create_organization(name="Acme", actor=SOMEONE)
    web, _ = services.create_project(organization=acme, name="Web shop", actor=SOMEONE)
    poor, _ = services.create_organization(name="Nearly empty", actor=SOMEONE)
    play, _ = services.create_project(organization=acme, name="Playroom", actor=SOMEONE)
    data = ConsoleData(acme, web, play, poor)
    _make_people()
    _make_catalog()
    _make_keys(data)
    _make_money(data)
    _make_policies(data)
    _make_hostile(data)
    return data


def _make_people() -> None:
    people = get_user_model().objects
    people.create_superuser(OPERATOR, "ada@example.com", PASSWORD)
    # Made by a migration, and emptied with the other tables by whatever test came before.
    roles.apply(apps)
    for group in Group.objects.all():
        person = people.create_user(group.name.lower(), password=PASSWORD, is_staff=True)
        person.groups.add(group)
    people.create_user(HOSTILE[0], password=PASSWORD, is_staff=True, first_name=HOSTILE[1])


def _make_catalog() -> None:
    simulator = make_backend("simulator")
    make_backend(
        "nowhere",
        "openai",
        base_url="http://127.0.0.1:9/v1/a/long/path/to/a/server",
        credential="sk-upstream",
    )
    make_backend("switched-off", "openai", base_url="http://127.0.0.1:9/v1", is_enabled=False)
    for name in SIMULATED:
        deploy(make_model(f"sim/{name}", **COLUMNS), simulator, upstream_id=name)
    make_model("acme/no-price", prices=None)
    make_model("acme/no-place")
    make_model("acme/switched-off", is_enabled=False)
    make_model(f"acme/{'long-' * 30}name", display_name=HOSTILE[0])


def _make_keys(data: ConsoleData) -> None:
    for name in ("shop", "to rotate", "to revoke", "to suspend", "capped"):
        data.add_key(name)
    data.add_key("play", data.play)
    data.add_key("suspended")
    services.suspend_key(key=data.keys["suspended"], actor=SOMEONE)
    data.add_key("revoked")
    services.revoke_key(key=data.keys["revoked"], actor=SOMEONE)
    expired = data.add_key("expired", expires_at=timezone.now() + timedelta(days=1))
    type(expired).objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(hours=3))
    services.create_admin_key(organization=data.acme, name="terraform", actor=SOMEONE)
    old, _ = services.create_project(organization=data.acme, name="Old campaign", actor=SOMEONE)
    services.archive_project(project=old, actor=SOMEONE)
    services.create_project(organization=data.acme, name="To archive", actor=SOMEONE)
    poor, _ = services.create_project(organization=data.poor, name="Trial", actor=SOMEONE)
    data.add_key("poor", poor)


def _make_money(data: ConsoleData) -> None:
    for organization, amount in ((data.acme, "250"), (data.poor, "0.0003")):
        grant_credit(
            organization=organization, amount_nanousd=parse_usd(amount), reason="paid", actor=SOMEONE
        )
    grant_credit(organization=data.acme, amount_nanousd=parse_usd("-1.5"), reason=HOSTILE[1], actor=SOMEONE)
    for scope, period, limit in (
        (data.acme, SpendingCap.Period.MONTH, "100"),
        (data.web, SpendingCap.Period.DAY, "20"),
        (data.keys["capped"], SpendingCap.Period.TOTAL, "0.000001"),
    ):
        set_spending_limit(scope=scope, period=period, limit_nanousd=parse_usd(limit), actor=SOMEONE)


def _make_policies(data: ConsoleData) -> None:
    def make(name: str, mode: str | None = None, **fields: Any) -> Policy:
        terms = {"name": name, "rule": RULE, **fields}
        policy = policy_services.create_policy(organization=data.acme, actor=SOMEONE, **terms)
        if mode:
            policy = policy_services.publish_policy(policy=policy, mode=mode, actor=SOMEONE)
        data.policies[name] = policy
        return policy

    make("A draft", description="Nobody has published it.")
    make("To publish", mode=None)
    make("Watches", "monitoring", direction="both")
    make("Enforces", "enforcing", scope="projects", project_ids=[str(data.web.pk)], direction="request")
    make("To pause", "monitoring")
    policy_services.pause_policy(policy=make("Paused", "enforcing"), actor=SOMEONE)
    make(HOSTILE[0], "monitoring", description=LONG)


def _make_hostile(data: ConsoleData) -> None:
    for number, name in enumerate((*HOSTILE, RIGHT_TO_LEFT, LONG, UNBROKEN)):
        organization, _ = services.create_organization(name=name, actor=SOMEONE)
        project, _ = services.create_project(organization=organization, name=name, actor=SOMEONE)
        data.add_key(name, project)
        amount = parse_usd("3.000000001")
        grant_credit(organization=organization, amount_nanousd=amount, reason=name, actor=SOMEONE)
        # A name of a check has no spaces.
        inference_services.pass_check(organization=organization, check_name=f"terms-{number}", actor=SOMEONE)


# --- requests ----------------------------------------------------------------------------------------


def make_requests(data: ConsoleData, address: str) -> None:
    """One of each outcome, and then the sums of the day, as the schedule makes them."""
    asked = [("shop", f"sim/{name}", "hello there", name in ("words", "thinker")) for name in SIMULATED]
    asked += [("shop", "sim/echo", f"tell me about {PHRASE}", False), ("shop", "no/such", "hello", False)]
    asked += [(name, "sim/echo", "hello", True) for name in (*HOSTILE, RIGHT_TO_LEFT, LONG, UNBROKEN)]
    asked += [(name, "sim/echo", "hello", False) for name in ("poor", "capped")]
    asked.remove(("shop", "sim/paced-400x40", "hello there", False))
    _ask(address, data.values["poor"], "sim/endless", "hello", False)  # most of what it has
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: _ask(address, data.values[one[0]], *one[1:]), asked))
    _hang_up(address, data.values["shop"])
    until(lambda: Activity.objects.count() > len(asked) + 1 or None)
    until(lambda: Verdict.objects.exists() or None)
    _correct_prices()
    roll_up()
    audit_and_record()


def _correct_prices() -> None:
    """Charge a model's requests of the last hour again, by a price that applies from tomorrow on."""
    now = timezone.now()
    version, _ = add_version(
        model="sim/usage-cached",
        card=PriceCard.flat(prompt=100_000, completion=500_000, cached=50_000),
        source="price list",
        actor=SOMEONE,
        valid_from=now + timedelta(days=1),
    )
    scope = CorrectionScope("sim/usage-cached", now - timedelta(hours=1), now, version)
    rerate(scope, actor=SOMEONE, reason="The price was agreed on earlier.")


def _ask(address: str, value: str, model: str, said: str, is_stream: bool) -> None:
    with contextlib.suppress(urllib.error.HTTPError), _open(address, value, model, said, is_stream) as answer:
        answer.read()


def _hang_up(address: str, value: str) -> None:
    with _open(address, value, "sim/paced-400x40", "hello", True) as answer:
        answer.readline()


def _open(address: str, value: str, model: str, said: str, is_stream: bool) -> Any:
    body = {"model": model, "stream": is_stream, "messages": [{"role": "user", "content": said}]}
    request = urllib.request.Request(  # noqa: S310 - the server is ours
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {value}", "Content-Type": "application/json"},
    )
    return urllib.request.urlopen(request, timeout=REQUEST_SECONDS)  # noqa: S310
