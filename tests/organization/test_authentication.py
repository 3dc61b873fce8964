"""Credentials, as clients send them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gateway_site.api.errors import Unauthenticated, WrongKeyKind
from gateway_site.api.rest_rate_limits.limits import client_address
from organization import keys, services
from organization.authentication import admin_key_from, customer_key_from
from organization.models import Organization, Project, ProjectKey
from tests.factories import SOMEONE, make_admin_key, make_project_key
from tests.harness.client import ApiClient
from tests.harness.error_checks import assert_error

LIST = "/v1/organization/admin_api_keys"


def headers(*pairs: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in pairs]


def test_both_customer_schemes_are_accepted(project: Project) -> None:
    made = make_project_key(project)

    assert customer_key_from(headers(("authorization", f"Bearer {made.value}"))) == made.key
    assert customer_key_from(headers(("x-api-key", made.value))) == made.key


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer   "])
def test_the_schemes_name_may_be_in_any_case(project: Project, scheme: str) -> None:
    made = make_project_key(project)

    assert customer_key_from(headers(("Authorization", scheme + made.value))) == made.key


def test_exactly_one_credential_is_taken(project: Project) -> None:
    value = make_project_key(project).value
    bearer, bare = ("authorization", f"Bearer {value}"), ("x-api-key", value)
    for pairs in (
        [],
        [bearer, bare],
        [bearer, bearer],
        [bare, bare],
        [("authorization", "Bearer a,Bearer b")],
    ):
        with pytest.raises(Unauthenticated):
            customer_key_from(headers(*pairs))


@pytest.mark.parametrize(
    "sent",
    ["{v}", "Basic {v}", "Bearer", "Bearer {v} {v}", "Bearer\t{v}", "Token {v}", "Bearer {v}x", "Bearer é"],
)
def test_a_malformed_header_is_refused(project: Project, sent: str) -> None:
    value = make_project_key(project).value

    with pytest.raises(Unauthenticated):
        customer_key_from(headers(("authorization", sent.format(v=value))))


def test_a_keys_case_matters(project: Project) -> None:
    with pytest.raises(Unauthenticated):
        customer_key_from(headers(("x-api-key", make_project_key(project).value.swapcase())))


def test_an_admin_key_is_for_organization_routes_alone(acme: Organization) -> None:
    value = make_admin_key(acme).value

    with pytest.raises(WrongKeyKind):
        customer_key_from(headers(("x-api-key", value)))
    with pytest.raises(Unauthenticated):
        admin_key_from(headers(("x-api-key", value)))  # the header scheme is the customers'


@pytest.mark.parametrize("end", ["revoke", "suspend", "expire"])
def test_an_ended_customer_key_is_refused_and_a_resumed_one_is_not(project: Project, end: str) -> None:
    expires_at = timezone.now() - timedelta(seconds=1) if end == "expire" else None
    made = make_project_key(project, expires_at=expires_at)
    if end == "revoke":
        services.revoke_key(key=made.key, actor=SOMEONE)
    if end == "suspend":
        services.suspend_key(key=made.key, actor=SOMEONE)
    credential = headers(("x-api-key", made.value))

    with pytest.raises(Unauthenticated):
        customer_key_from(credential)

    if end == "suspend":
        services.resume_key(key=made.key, actor=SOMEONE)
        assert customer_key_from(credential) == made.key


def test_a_rotated_key_works_with_its_new_value_alone(project: Project) -> None:
    made = make_project_key(project)
    rotated = services.rotate_key(key=made.key, actor=SOMEONE)

    assert customer_key_from(headers(("x-api-key", rotated.value))) == made.key
    with pytest.raises(Unauthenticated):
        customer_key_from(headers(("x-api-key", made.value)))


def test_last_use_is_remembered_to_the_minute(project: Project, django_assert_num_queries: Any) -> None:
    made = make_project_key(project)
    credential = headers(("x-api-key", made.value))

    customer_key_from(credential)
    first = ProjectKey.objects.get().last_used_at
    customer_key_from(credential)

    assert first is not None
    assert ProjectKey.objects.get().last_used_at == first
    ProjectKey.objects.update(last_used_at=first - timedelta(minutes=2))
    customer_key_from(credential)
    assert ProjectKey.objects.get().last_used_at != first - timedelta(minutes=2)


def test_a_new_pepper_takes_over_from_the_old(project: Project, settings: Any) -> None:
    made = make_project_key(project)
    credential = headers(("x-api-key", made.value))
    old = settings.GATEWAY_KEY_PEPPERS[0]

    settings.GATEWAY_KEY_PEPPERS = ["new", old]
    assert customer_key_from(credential) == made.key  # and is stored under the new one from here on

    settings.GATEWAY_KEY_PEPPERS = ["new"]
    assert customer_key_from(credential) == made.key
    settings.GATEWAY_KEY_PEPPERS = [old]
    with pytest.raises(Unauthenticated):
        customer_key_from(credential)


def test_no_stored_column_is_a_credential(project: Project) -> None:
    made = make_project_key(project)

    for value in ProjectKey.objects.values_list("digest", "redacted_value", "id").get():
        with pytest.raises(Unauthenticated):
            customer_key_from(headers(("x-api-key", str(value))))
    assert made.value not in repr(made)


def test_keys_can_be_recognised_and_nothing_else_is_taken_for_one() -> None:
    issued = [keys.new_value(kind) for kind in ("customer", "admin") for _ in range(500)]

    assert len(set(issued)) == 1000
    assert all(keys.kind_of(value) for value in issued)
    for value in issued[:100]:
        swapped = "a" if value[10] != "a" else "b"
        assert keys.kind_of(value[:10] + swapped + value[11:]) is None
        assert keys.kind_of("gwx_" + value[4:]) is None
        assert keys.kind_of(value + "\n") is None


def test_many_bad_credentials_from_one_address_are_slowed_down(db: None, settings: Any) -> None:
    settings.GATEWAY_FAILED_LOGINS_PER_MINUTE = 3
    guesser = ApiClient("gwa_guess")

    answers = [guesser.get(LIST, headers={"X-Forwarded-For": f"10.0.0.{n}"}) for n in range(5)]

    assert [answer.status for answer in answers] == [401, 401, 401, 429, 429]
    assert_error(answers[-1], 429, "rate_limit_exceeded")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60


def test_an_admin_key_has_its_own_minute(api: ApiClient, rival_api: ApiClient, settings: Any) -> None:
    settings.GATEWAY_ADMIN_REQUESTS_PER_MINUTE = 2

    assert [api.get(LIST).status for _ in range(3)] == [200, 200, 429]
    assert rival_api.get(LIST).status == 200


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (0, "1.1.1.1", "9.9.9.9"),
        (1, "1.1.1.1", "1.1.1.1"),
        (1, "6.6.6.6, 1.1.1.1", "1.1.1.1"),
        (2, "6.6.6.6, 1.1.1.1, 2.2.2.2", "1.1.1.1"),
        (3, "1.1.1.1", "1.1.1.1"),
        (1, "", "9.9.9.9"),
    ],
)
def test_the_address_is_the_one_in_front_of_our_proxies(
    rf: Any, settings: Any, proxies: int, forwarded: str, expected: str
) -> None:
    settings.GATEWAY_TRUSTED_PROXIES = proxies

    request = rf.get("/", headers={"X-Forwarded-For": forwarded}, REMOTE_ADDR="9.9.9.9")

    assert client_address(request) == expected
