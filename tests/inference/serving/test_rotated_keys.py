"""The value that a key had before it was rotated, sent while every cache is fresh."""

from __future__ import annotations

from typing import Any

import pytest

from organization import keys, services
from organization.models import ProjectKey
from tests.factories import SOMEONE, make_admin_key
from tests.harness.client import ApiClient
from tests.harness.error_checks import assert_error
from tests.inference.customer import Gateway, question
from tests.inference.dialects.messages.customer import count
from tests.inference.dialects.responses.customer import ask


@pytest.fixture
def rotated(gateway: Gateway) -> str:
    """The new value; whatever remembers keys remembers the old one."""
    gateway.simulate("echo")
    assert gateway.ask("echo").status == 200
    return services.rotate_key(key=gateway.key, actor=SOMEONE).value


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_chat_refuses_it_as_it_refuses_an_unknown_key(gateway: Gateway, rotated: str, stream: bool) -> None:
    refused = gateway.ask("echo", stream=stream)

    unknown = gateway.post(question("echo"), key=keys.new_value("customer"))
    assert_error(refused, 401, "invalid_api_key")
    assert refused.error["message"] == unknown.error["message"]
    assert gateway.post(question("echo", stream=stream), key=rotated).status == 200


def test_every_other_route_of_customers_refuses_it(gateway: Gateway, rotated: str) -> None:
    assert_error(ask(gateway, "echo"), 401, "invalid_api_key")
    assert_error(count(gateway), 401, "invalid_api_key", wrapped=True)
    assert_error(gateway.api.get("/v1/models"), 401, "invalid_api_key")
    assert ApiClient(rotated).get("/v1/models").status == 200


def test_it_is_refused_without_a_hold_or_a_count_in_the_rate_limit(gateway: Gateway, rotated: str) -> None:
    held = gateway.account.held_nanousd, gateway.account.settled_nanousd

    assert [gateway.ask("echo").status for _ in range(3)] == [401] * 3

    assert (gateway.account.held_nanousd, gateway.account.settled_nanousd) == held
    assert gateway.reservation()  # that of the request before the rotation


def test_organization_routes_refuse_an_admin_keys(gateway: Gateway) -> None:
    made = make_admin_key(gateway.project.organization)
    path = "/v1/organization/admin_api_keys"
    assert ApiClient(made.value).get(path).status == 200

    rotated = services.rotate_key(key=made.key, actor=SOMEONE)

    assert_error(ApiClient(made.value).get(path), 401, "invalid_api_key")
    assert ApiClient(rotated.value).get(path).status == 200


def test_a_value_that_another_process_moved_to_a_new_pepper_is_not_refused(
    gateway: Gateway, settings: Any
) -> None:
    gateway.simulate("echo")
    old = settings.GATEWAY_KEY_PEPPERS[0]
    settings.GATEWAY_KEY_PEPPERS = [old, "new"]
    assert gateway.ask("echo").status == 200

    # While the processes are restarted one by one, each puts its own first pepper first.
    for pepper in ("new", old, "new"):
        ProjectKey.objects.filter(pk=gateway.key.pk).update(digest=keys.digest_of(gateway.value, pepper))
        assert gateway.ask("echo").status == 200
