"""Customers read what can be asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import openai
import pytest
from django.utils import timezone
from openai import OpenAI

from billing.money import parse_price
from billing.prices.card import PriceCard, Rate, Tier
from inference.catalog import services
from inference.models import Backend
from organization.models import Organization, Project
from tests.factories import SOMEONE, make_project_key
from tests.harness.client import Answer, ApiClient, exchange
from tests.harness.documented_routes import document
from tests.harness.error_checks import assert_error
from tests.harness.live_server import live_server
from tests.inference.catalog.factories import deploy, make_backend, make_model, make_served_model

# As the interface description lists them.
FIELDS = {
    "id": str,
    "object": str,
    "owned_by": str,
    "name": str,
    "display_name": str,
    "access": dict,
    "created": int,
    "input_modalities": list,
    "output_modalities": list,
    "pricing": dict,
    "supported_sampling_parameters": list,
    "sampling_limits": dict,
    "sampling_limits_revision": str,
    "supported_features": list,
    "is_ready": bool,
    "quantization": str,
    "context_length": int,
    "max_output_length": int,
    "root": str,
    "parent": str,
}
ODD_ID = "org/model:free@v1"


@pytest.fixture
def customer(project: Project) -> ApiClient:
    return ApiClient(make_project_key(project).value)


@pytest.fixture
def stranger(rival_project: Project) -> ApiClient:
    return ApiClient(make_project_key(rival_project).value)


def read(client: ApiClient, model_id: str) -> Any:
    answer = client.get(f"/v1/models/{model_id}")
    assert answer.status == 200, answer.body
    return answer.json


def test_it_works(customer: ApiClient) -> None:
    model = make_served_model("simulator/echo", display_name="Echo", context_length=1_000)

    model_read = read(customer, "simulator/echo")

    assert {name: type(value) for name, value in model_read.items()} == FIELDS
    assert (model_read["id"], model_read["object"], model_read["name"], model_read["root"]) == (
        model.pk,
        "model",
        model.pk,
        model.pk,
    )
    assert model_read["display_name"] == "Echo"
    assert model_read["created"] == int(model.created_at.timestamp())
    assert model_read["access"] == {
        "required_checks": [],
        "available": True,
        "locked": False,
        "missing_requirements": [],
    }
    assert model_read["is_ready"] is True
    assert (model_read["sampling_limits"], model_read["sampling_limits_revision"]) == ({}, "0")
    assert (model_read["context_length"], model_read["max_output_length"]) == (1_000, 1_000)


@pytest.mark.parametrize("path", ["org/model:free@v1", "org%2Fmodel:free@v1", "org%2fmodel%3Afree%40v1"])
def test_ids_hold_slashes_encoded_or_not(customer: ApiClient, path: str) -> None:
    make_served_model(ODD_ID)

    assert read(customer, path)["id"] == ODD_ID


def test_prices_read_back_exactly(customer: ApiClient) -> None:
    picousd = {
        "prompt_price_picousd": 1,
        "completion_price_picousd": 123_456_789_012_345,
        "cached_price_picousd": 0,
        "image_price_picousd": 2**62 + 1,
        "request_price_picousd": 10_000_000_000,
    }
    make_served_model("m", **picousd)

    pricing = read(customer, "m")["pricing"]

    assert set(pricing) == {"prompt", "completion", "image", "request", "input_cache_read"}
    assert all("e" not in text.lower() for text in pricing.values())
    assert {
        "prompt_price_picousd": parse_price(pricing["prompt"]),
        "completion_price_picousd": parse_price(pricing["completion"]),
        "cached_price_picousd": parse_price(pricing["input_cache_read"]),
        "image_price_picousd": parse_price(pricing["image"]),
        "request_price_picousd": parse_price(pricing["request"]),
    } == picousd


def test_a_card_with_tiers_is_read_by_its_base_prices(customer: ApiClient, stranger: ApiClient) -> None:
    """The shape that clients know has no tiers: a price is that of a short prompt, in force now."""
    make_served_model("m", prices=None)
    card = PriceCard(
        {
            "prompt": Rate(3_000_000, (Tier(200_000, 6_000_000),)),
            "completion": Rate(15_000_000, (Tier(200_000, 22_500_000),)),
            "cache_write": Rate(3_750_000),
        }
    )
    services.save_model(model_id="m", changes={}, card=card, actor=SOMEONE)
    later = timezone.now() + timedelta(days=1)
    services.save_model(
        model_id="m", changes={}, prices={"prompt": 4_000_000}, valid_from=later, actor=SOMEONE
    )

    pricing = read(customer, "m")["pricing"]

    assert pricing == {
        "prompt": "0.000003",
        "completion": "0.000015",
        "image": "0",
        "request": "0",
        "input_cache_read": "0.000003",
    }
    assert read(stranger, "m")["pricing"] == pricing


def test_unknown_and_switched_off_are_the_same_404(customer: ApiClient) -> None:
    make_served_model("off", is_enabled=False)

    unknown, off = (customer.get(f"/v1/models/{name}") for name in ("unknown", "off"))

    assert_error(unknown, 404, "model_not_found", param="model")
    assert_error(off, 404, "model_not_found", param="model")
    assert unknown.error["message"] == off.error["message"]


@pytest.mark.parametrize("path", ["%00", "a%00b", "x" * 3_000, "%ED%A0%80", "m/", "%2Fm", ".", "..%2Fm"])
def test_nonsense_is_not_found(customer: ApiClient, path: str) -> None:
    make_served_model("m")

    assert_error(customer.get(f"/v1/models/{path}"), 404)


def test_a_model_without_a_price_is_not_shown_as_free(customer: ApiClient) -> None:
    make_served_model("m", prices=None)
    make_served_model("priced")

    answer = customer.get("/v1/models/m")

    assert_error(answer, 503, "model_not_configured")
    assert answer.headers["x-should-retry"] == "false"
    assert [model["id"] for model in customer.get("/v1/models").json["data"]] == ["priced"]


def test_a_locked_model_says_what_is_missing(
    customer: ApiClient, stranger: ApiClient, acme: Organization
) -> None:
    make_served_model("m", required_checks=["terms", "age"])
    services.pass_check(organization=acme, check_name="age", actor=SOMEONE)

    assert read(customer, "m")["access"] == {
        "required_checks": ["terms", "age"],
        "available": False,
        "locked": True,
        "missing_requirements": ["terms"],
    }
    services.pass_check(organization=acme, check_name="terms", actor=SOMEONE)
    assert read(customer, "m")["access"]["available"] is True
    assert read(stranger, "m")["access"]["missing_requirements"] == ["age", "terms"]


def test_a_model_is_ready_if_one_deployment_is_on_and_answered(customer: ApiClient) -> None:
    model = make_model("m")
    assert read(customer, "m")["is_ready"] is False

    deploy(model, make_backend("a", "openai", base_url="http://127.0.0.1:9/v1"))
    deployment = deploy(model, make_backend("b", "openai", base_url="http://127.0.0.1:10/v1"))
    assert read(customer, "m")["is_ready"] is True

    Backend.objects.filter(name="a").update(probed_at=timezone.now(), probe_problem="It is down.")
    assert read(customer, "m")["is_ready"] is True

    deploy(model, deployment.backend, is_enabled=False)
    assert read(customer, "m")["is_ready"] is False
    assert "down" not in customer.get("/v1/models/m").body.decode()


@pytest.mark.parametrize("header", ["X-Api-Key", "x-api-key"])
def test_the_bare_key_is_taken_too(project: Project, header: str) -> None:
    make_served_model("m")
    value = make_project_key(project).value

    for path in ("/v1/models/m", "/v1/models"):
        assert exchange("GET", path, [(header, value)]).status == 200
        both = [(header, value), ("Authorization", f"Bearer {value}")]
        assert_error(exchange("GET", path, both), 401, "invalid_api_key")


def test_headers_of_the_sdks_change_nothing(customer: ApiClient) -> None:
    make_served_model("m")
    headers = {
        "OpenAI-Organization": "other",
        "OpenAI-Project": "other",
        "X-Stainless-Lang": "python",
        "X-HTTP-Method-Override": "DELETE",
    }

    assert customer.get("/v1/models/m", headers=headers).status == 200


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_the_model_routes_are_read_only(customer: ApiClient, path: str, method: str) -> None:
    make_served_model("m")

    assert_error(customer.request(method, path), 405, "method_not_allowed")
    assert customer.request("HEAD", path).status == 200


def test_the_list_has_every_model_that_is_on(customer: ApiClient, django_assert_max_num_queries: Any) -> None:
    for name in ("b", "a/c", "a"):
        make_served_model(name)
    make_served_model("off", is_enabled=False)

    with django_assert_max_num_queries(7):
        listed: Answer = customer.get("/v1/models")

    assert set(listed.json) == {"object", "data"}
    assert listed.json["object"] == "list"
    assert [model["id"] for model in listed.json["data"]] == ["a", "a/c", "b"]
    assert listed.json["data"][0] == read(customer, "a")


def test_the_list_is_an_extension_that_can_be_switched_off(customer: ApiClient, settings: Any) -> None:
    make_served_model("m")
    assert document()["paths"]["/v1/models"]["get"]["x-extension"] == "openai"
    assert "x-extension" not in document()["paths"]["/v1/models/{model}"]["get"]

    settings.GATEWAY_EXTENSIONS = False

    for client in (customer, ApiClient()):
        assert_error(client.get("/v1/models"), 404, "not_found")
    assert "/v1/models" not in document()["paths"]
    assert read(customer, "m")


def test_a_key_may_not_ask_for_ever(customer: ApiClient, settings: Any) -> None:
    settings.GATEWAY_REQUESTS_PER_MINUTE = 2
    make_served_model("m")

    statuses = [customer.get("/v1/models/m").status for _ in range(3)]

    assert statuses == [200, 200, 429]


@pytest.mark.django_db(transaction=True)
def test_the_sdk_reads_them(process_environment: dict[str, str], project: Project) -> None:
    make_served_model(ODD_ID)
    make_served_model("unpriced", prices=None)
    made = make_project_key(project)
    with live_server(process_environment) as running:
        client = OpenAI(base_url=f"{running.address}/v1", api_key=made.value, max_retries=0)

        found = client.models.retrieve(ODD_ID)
        listed = [model.id for model in client.models.list()]
        with pytest.raises(openai.NotFoundError) as not_found:
            client.models.retrieve("nobody/has-this")
        with pytest.raises(openai.InternalServerError) as unavailable:
            client.models.retrieve("unpriced")

    assert (found.id, found.object, found.owned_by) == (ODD_ID, "model", "gateway")
    assert listed == [ODD_ID]
    assert not_found.value.code == "model_not_found"
    assert unavailable.value.status_code == 503
