"""Whatever stands in an address, a cookie or a posted field: the console answers, and never with 500."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.template.response import SimpleTemplateResponse
from django.test import Client

from gateway_site.console.kit.list_lookups import parameters_of
from inference.models import CatalogModel, PassedCheck
from organization.models import ProjectKey
from tests.gateway_site.console.factories import MODELS, SampleRows, list_url, page
from tests.harness.client import exchange

pytestmark = pytest.mark.django_db
HUGE = str(10**400)
BEYOND_64_BITS = str(2**63)
VALUES = {
    "long": "a" * 100_000,
    "many words": "a " * 4_000,
    "nul": "a\0b",
    "surrogate": "\udc80",
    "noncharacter": "\uffff\u202e\ufdfa",
    "huge": HUGE,
    "endless digits": "9" * 6_000,
    "beyond 64 bits": BEYOND_64_BITS,
    "below 64 bits": f"-{BEYOND_64_BITS}9",
    "pattern": "%_\\'\"[](){}*+?^$|",
    "list": "1,2," * 100,
    "float": "1e999",
    "not a number": "nan",
    "quoted": '"a',
}
# Of the others, lists read nothing: their addresses are refused, or their search is.
READ_BY_LISTS = [
    VALUES["huge"],
    VALUES["beyond 64 bits"],
    VALUES["pattern"],
    VALUES["noncharacter"],
    '"a',
    "-1",
]
OF_EVERY_LIST = ["q", "o", "p"]
OF_LISTS_ALIKE = ["e", "all", "_changelist_filters", "_popup", "_to_field", "_facets"]
OTHER_PAGES = {
    "/admin/": ["organization"],
    "/admin/search/": ["s", "page"],
    "/admin/search/?s=organ": ["page", "extended"],
    "/admin/costs/": ["organization", "project", "from", "to", "group_by"],
    "/admin/costs.csv": ["organization", "project", "from", "to", "group_by"],
    "/admin/playground/": ["project"],
    "/admin/login/": ["next"],
}


@pytest.fixture(autouse=True)
def failures_are_answers(console: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    console.raise_request_exception = False
    # What a list finds is read before it is drawn, and drawing thousands of pages takes minutes.
    monkeypatch.setattr(SimpleTemplateResponse, "rendered_content", "")


def ask(client: Client, address: str, value: str, *names: str) -> dict[str, int]:
    """The statuses, by parameter, that are neither an answer nor a refusal."""
    text = quote(value.encode("utf-8", "surrogatepass"), safe="")
    joint = "&" if "?" in address else "?"
    seen = {name: client.get(f"{address}{joint}{name}={text}").status_code for name in names}
    return {name: status for name, status in seen.items() if status >= 500}


def post(client: Client, address: str, **fields: str) -> int:
    body = "&".join(
        f"{name}={quote(value.encode('utf-8', 'surrogatepass'), safe='')}" for name, value in fields.items()
    )
    return client.post(address, body, content_type="application/x-www-form-urlencoded").status_code


@pytest.mark.slow
@pytest.mark.one_database
@pytest.mark.parametrize("value", READ_BY_LISTS, ids=ascii)
def test_no_query_of_a_list_is_a_server_error(value: str, console: Client) -> None:
    for model in MODELS:
        filters = parameters_of(site._registry[model].list_filter, model)
        assert ask(console, list_url(model), value, *OF_EVERY_LIST, *filters) == {}, model
    assert ask(console, list_url(ProjectKey), value, *OF_LISTS_ALIKE) == {}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_query_of_another_page_is_a_server_error(value: str, console: Client) -> None:
    for address, names in OTHER_PAGES.items():
        assert ask(console, address, value, *names) == {}, address
    field = {"app_label": "organization", "model_name": "projectkey", "field_name": "project"}
    for name in ("term", "page", *field):
        sent: dict[str, str | bytes] = {**field, name: value.encode("utf-8", "surrogatepass")}
        assert console.get("/admin/autocomplete/", sent).status_code < 500, name


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_id_in_the_address_of_a_row_is_a_server_error(value: str, console: Client) -> None:
    text = quote(value.encode("utf-8", "surrogatepass"), safe="")
    for model in MODELS:
        for kind in ("change", "do/revoke"):
            status = console.get(f"{list_url(model)}{text}/{kind}/").status_code
            assert status < 500, (model, kind)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_id_of_a_chosen_row_is_a_server_error(value: str, console: Client) -> None:
    actions = {User: "deactivate", ProjectKey: "revoke", CatalogModel: "disable", PassedCheck: "withdraw"}
    for model, action in actions.items():
        assert post(console, list_url(model), action=action, _selected_action=value) < 500, model
        assert post(console, list_url(model), action=value, _selected_action="1") < 500, model


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_log_in_with_any_text(value: str) -> None:
    client = Client(raise_request_exception=False)
    for name in ("username", "password", "next", "csrfmiddlewaretoken"):
        assert post(client, "/admin/login/", **{"username": "ada", "password": "x", name: value}) < 500, name


@pytest.mark.parametrize(
    "cookie",
    [
        "a" * 60_000,
        '"\\000\\000\\000\\000aaaaaaaa"',
        '"\\377"',
        "a b",
        "../../../etc/passwd",
        "%00%00aaaaaaaa",
    ],
)
def test_no_cookie_is_a_server_error(cookie: str) -> None:
    for name in ("sessionid", "messages", "csrftoken", "known_device"):
        answer = exchange("GET", "/admin/login/", [("Cookie", f"{name}={cookie}")])
        assert answer.status == 200, name
        assert exchange("GET", "/admin/", [("Cookie", f"{name}={cookie}")]).status == 302


def test_a_long_address_is_refused_with_its_bound(console: Client, samples: SampleRows) -> None:
    for address in (list_url(ProjectKey) + "?q=" + "a" * 9_000, "/admin/" + "a" * 2_000):
        answer = console.get(address)
        assert answer.status_code == 400
        assert "at most 1,024 characters" in answer.json()["error"]["message"]
    assert console.get(page(samples[ProjectKey])).status_code == 200
