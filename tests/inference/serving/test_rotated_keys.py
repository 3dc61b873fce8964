"""The value that a key had before it was rotated, sent while every cache is fresh."""

from __future__ import annotations

from typing import Any

import pytest

from organization import keys, services
from organization.models import ProjectKey
from tests.factories import SOMEONE, make_admin_key
from tests.harness.client import ApiClient
from tests.harness.error_checks import assert_error
from tests.inference.customer import ApiCustomer, question
from tests.inference.dialects.messages.customer import count
from tests.inference.dialects.responses.customer import ask


@pytest.fixture
def rotated(customer: ApiCustomer) -> str:
    """The new value; whatever remembers keys remembers the old one."""
    customer.simulate("echo")
    assert customer.ask("echo").status == 200
    return services.rotate_key(key=customer.key, actor=SOMEONE).value


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_chat_refuses_it_as_it_refuses_an_unknown_key(
    customer: ApiCustomer, rotated: str, stream: bool
) -> None:
    refused = customer.ask("echo", stream=stream)

    unknown = customer.post(question("echo"), key=keys.new_value("customer"))
    assert_error(refused, 401, "invalid_api_key")
    assert refused.error["message"] == unknown.error["message"]
    assert customer.post(question("echo", stream=stream), key=rotated).status == 200


def test_every_other_route_of_customers_refuses_it(customer: ApiCustomer, rotated: str) -> None:
    assert_error(ask(customer, "echo"), 401, "invalid_api_key")
    assert_error(count(customer), 401, "invalid_api_key", wrapped=True)
    assert_error(customer.api.get("/v1/models"), 401, "invalid_api_key")
    assert ApiClient(rotated).get("/v1/models").status == 200


def test_it_is_refused_without_a_hold_or_a_count_in_the_rate_limit(
    customer: ApiCustomer, rotated: str
) -> None:
    held = customer.account.held_nanousd, customer.account.settled_nanousd

    assert [customer.ask("echo").status for _ in range(3)] == [401] * 3

    assert (customer.account.held_nanousd, customer.account.settled_nanousd) == held
    assert customer.reservation()  # that of the request before the rotation


def test_organization_routes_refuse_an_admin_keys(customer: ApiCustomer) -> None:
    made = make_admin_key(customer.project.organization)
    path = "/v1/organization/admin_api_keys"
    assert ApiClient(made.value).get(path).status == 200

    rotated = services.rotate_key(key=made.key, actor=SOMEONE)

    assert_error(ApiClient(made.value).get(path), 401, "invalid_api_key")
    assert ApiClient(rotated.value).get(path).status == 200


def test_a_value_that_another_process_moved_to_a_new_pepper_is_not_refused(
    customer: ApiCustomer, settings: Any
) -> None:
    customer.simulate("echo")
    old = settings.GATEWAY_KEY_PEPPERS[0]
    settings.GATEWAY_KEY_PEPPERS = [old, "new"]
    assert customer.ask("echo").status == 200

    # While the processes are restarted one by one, each puts its own first pepper first.
    for pepper in ("new", old, "new"):
        ProjectKey.objects.filter(pk=customer.key.pk).update(digest=keys.digest_of(customer.value, pepper))
        assert customer.ask("echo").status == 200
