"""What the console calls things: the same everywhere, ids as they are, and amounts in one way."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin import site
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing import services as billing_services
from billing.models import Account, CostLine, Reservation, SpendingCap
from gateway_site.console.navigation import NAVIGATION
from inference.models import Backend, CatalogModel, PassedCheck
from organization import services
from organization.models import AuditEvent, Organization, Project, ProjectKey
from policies import services as policy_services
from policies.models import Policy, PolicyVersion, Verdict
from tests.factories import SOMEONE
from tests.gateway_site.console.clients import person
from tests.gateway_site.console.factories import SampleRows, action_url, list_url, page, signed_in, someone
from tests.inference.catalog.factories import make_backend, make_model

# What is on a page does not depend on the database behind it.
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
PAGES = [item for group in NAVIGATION for item in group["items"]]
HEADING = re.compile(r'<(?:a|span) class="heading-part"[^>]*>([^<]*)<')


def read(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return str(answer.content.decode())


def heading(client: Client, address: str) -> list[str]:
    return HEADING.findall(read(client, address))


# --- headings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", PAGES, ids=lambda item: item["title"])
def test_a_page_is_called_what_the_sidebar_calls_it(console: Client, item: dict[str, Any]) -> None:
    shown = read(console, str(item["link"]))

    assert HEADING.findall(shown) == [item["title"].replace("&", "&amp;")]
    assert f"<title>\n{item['title']} |" in re.sub(r"<title>\s+", "<title>\n", shown)


def test_an_id_keeps_its_first_letter(console: Client) -> None:
    model = make_model("acme/small")

    assert heading(console, page(model)) == ["Models", "acme/small"]
    assert heading(console, action_url(model, "disable")) == ["Models", "acme/small", "Disable"]


def test_the_page_to_try_a_policy_names_it(console: Client, samples: SampleRows) -> None:
    policy = samples[Policy]

    shown = read(console, reverse("admin:policies_policy_try", args=[policy.pk]))

    assert HEADING.findall(shown) == ["Policies", policy.name, "Try it"]
    assert f'href="{page(policy)}"' in shown


def test_the_page_to_add_a_row_says_what_is_added(console: Client) -> None:
    assert heading(console, reverse("admin:organization_projectkey_add")) == ["API keys", "Add API key"]


def test_what_belongs_to_an_organization_bears_its_name(console: Client, samples: SampleRows) -> None:
    assert heading(console, page(samples[Account])) == ["Credit", "Acme"]
    assert heading(console, page(samples[PassedCheck])) == [
        "Passed checks",
        f"{samples[PassedCheck].check_name} of Acme",
    ]
    assert heading(console, page(samples[SpendingCap]))[1].startswith("Limit of key Acme")
    assert "period 1 of cap" not in read(console, page(samples[SpendingCap]))
    assert heading(console, page(samples[Verdict]))[1].startswith(("Match by ", "No match by "))


def test_the_text_of_a_row_takes_no_query(samples: SampleRows) -> None:
    account = Account.objects.get()

    with CaptureQueriesContext(connection) as asked:
        assert str(account) == str(account.pk)
        assert str(PassedCheck.objects.get()).endswith(str(account.pk))

    assert len(asked) == 1


def test_the_trail_names_whose_credit_it_was(console: Client, samples: SampleRows) -> None:
    names = [f"Customer {number}" for number in range(6)]

    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            read(console, list_url(AuditEvent))
        return len(asked)

    read(console, list_url(AuditEvent))
    before = queries()
    for name in names:
        organization = Organization.objects.create(name=name)
        billing_services.grant_credit(organization=organization, amount_nanousd=1, reason="", actor=SOMEONE)

    assert queries() == before
    shown = read(console, list_url(AuditEvent))
    for name in names:
        assert re.search(rf">{name}</a><span class=\"under\">account<", shown)


@pytest.mark.parametrize(
    ("model", "words"), [(Account, "2 accounts"), (AuditEvent, "entries"), (Group, "4 roles")]
)
def test_rows_are_counted_by_what_one_of_them_is(
    console: Client, samples: SampleRows, model: Any, words: str
) -> None:
    organization = Organization.objects.create(name="Other")
    billing_services.grant_credit(organization=organization, amount_nanousd=1, reason="", actor=SOMEONE)

    shown = " ".join(read(console, list_url(model)).split())

    assert re.search(rf"\d* ?{words} <", shown)


def test_no_open_reservation_is_not_said_to_be_none_at_all(console: Client, samples: SampleRows) -> None:
    console.post(action_url(samples[Reservation], "write_off"), {"confirmed": "yes"})

    shown = read(console, list_url(Reservation))

    assert "No open reservations" in shown
    assert "No reservations yet" not in shown


def test_days_are_written_in_one_way(console: Client, samples: SampleRows) -> None:
    line = samples[CostLine]

    for address in (list_url(CostLine), page(line)):
        assert re.search(rf">\s*{line.day:%Y-%m-%d}\s*<", read(console, address))


def test_a_role_says_what_it_may_do_in_the_consoles_words(console: Client, samples: SampleRows) -> None:
    shown = read(console, page(Group.objects.get(name="Operator")))

    for words in (
        ">API keys<",
        ">Admin keys<",
        ">Audit trail<",
        ">add, change, view<",
        ">use playground, view<",
    ):
        assert words in shown
    assert ">adminkey<" not in shown


# --- labels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", list(site._registry), ids=lambda model: model._meta.model_name)
def test_no_label_is_a_column_of_the_database(samples: SampleRows, console: Client, model: Any) -> None:
    addresses = [list_url(model)] + ([page(samples[model])] if model in samples.rows else [])
    for address in addresses:
        shown = read(console, address)
        for label in ("Id", "Base url", "Project ids", "Api key", "Is enabled", "Upstream id"):
            assert not re.search(rf">\s*{label}\s*(<span[^>]*>\*</span>)?\s*<", shown), (label, address)


def test_a_key_of_an_archived_project_is_not_taken_for_one_that_works(
    console: Client, samples: SampleRows
) -> None:
    key = samples.customer.key
    addresses = [list_url(ProjectKey), action_url(key, "suspend"), action_url(key, "resume")]
    assert not [each for each in addresses if "archived" in read(console, each)]

    services.archive_project(project=key.project, actor=SOMEONE)

    assert "Acme, archived" in read(console, addresses[0])
    for address in addresses[1:]:
        assert "The project is archived: its keys admit nothing" in read(console, address)


def test_a_backends_key_is_set_or_not_or_not_needed(console: Client) -> None:
    simulator = make_backend("simulator")
    bare = make_backend("bare", "openai", base_url="http://127.0.0.1:9/v1")
    kept = make_backend("kept", "openai", base_url="http://127.0.0.1:9/v1", credential="sk-upstream")

    for backend, words in ((simulator, "none needed"), (bare, "not set"), (kept, "set")):
        assert re.search(rf">\s*{words}\s*<", read(console, page(backend)))
    listed = read(console, list_url(Backend))
    assert ">none needed" in re.sub(r">\s+", ">", listed)
    assert "sk-upstream" not in listed + read(console, page(kept))
    [box] = re.findall(r'<input[^>]*name="removes_credential"[^>]*>', read(console, page(kept)))
    assert "appearance-none" in box  # drawn by the theme


def test_a_version_names_its_projects(console: Client, samples: SampleRows) -> None:
    version: PolicyVersion = samples[PolicyVersion]
    assert "none named" in read(console, page(version))

    project = samples.customer.project
    policy = samples[Policy]
    policy_services.edit_policy(
        policy=policy,
        revision=policy.revision,
        changes={"scope": "projects", "project_ids": [str(project.pk)]},
        actor=SOMEONE,
    )
    newer = policy_services.publish_policy(policy=policy, actor=SOMEONE).current_version
    shown = read(console, page(newer))
    assert f'<a class="text-link" href="{page(project)}">{project.name}</a>' in shown


def test_who_may_only_look_reads_words_and_not_the_database(samples: SampleRows) -> None:
    reader = signed_in(someone("Read-only"))
    project, policy, model = samples[Project], samples[Policy], samples[CatalogModel]
    policy_services.edit_policy(
        policy=policy,
        revision=policy.revision,
        changes={"scope": "projects", "project_ids": [str(project.pk)]},
        actor=SOMEONE,
    )

    shown = read(reader, page(policy))
    assert f'<a class="text-link" href="{page(project)}">{project.name}</a>' in shown
    assert "Project ids" not in shown
    shown = read(reader, page(model))
    assert "<div>input modalities: text</div>" in shown
    assert "<div>required checks: none</div>" in shown
    assert not re.search(r">\s*\[", shown)


# --- money -------------------------------------------------------------------------------------------


def test_an_amount_is_written_in_one_way_before_it_is_granted(console: Client, samples: SampleRows) -> None:
    address = action_url(samples[Organization], "grant_credit")
    typed = {"usd": "12.5", "form_id": "1", "asked": "yes"}

    review = console.post(address, typed).content.decode()
    fine = console.post(address, {**typed, "usd": "3.000000001"}).content.decode()

    assert "$12.50<" in review
    assert "$12.5<" not in review
    # Nobody agrees to digits that they were not shown.
    assert "$3.00</strong> (exactly $3.000000001)" in fine


# --- lists -------------------------------------------------------------------------------------------


def test_no_list_counts_its_table_once_for_each_choice() -> None:
    assert {page.show_facets for page in site._registry.values()} == {admin.ShowFacets.NEVER}


def test_a_check_is_withdrawn_by_those_who_may(samples: SampleRows) -> None:
    passed = samples[PassedCheck]
    reader = person("inference.view_passedcheck", "inference.change_passedcheck")

    assert reader.post(action_url(passed, "withdraw"), {"confirmed": "yes"}).status_code == 403
    assert PassedCheck.objects.filter(pk=passed.pk).exists()
