"""Counters that a stranger would like to be forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from gateway_site.api.rest_rate_limits import counters
from gateway_site.api.rest_rate_limits.counters import CounterStore
from gateway_site.api.rest_rate_limits.limits import Window, network_of
from tests.harness.client import exchange

MINUTE = 60


@pytest.mark.slow
def test_whoever_has_to_wait_still_has_to_after_a_hundred_thousand_others_came() -> None:
    store = CounterStore("guesses")
    for _ in range(6):
        store.count("guesser", limit=5, seconds=MINUTE)

    for number in range(100_000):
        store.count(f"stranger {number}", limit=5, seconds=MINUTE)

    assert store.count("guesser", limit=5, seconds=MINUTE) == 7
    assert len(store) <= counters.MAX_ENTRIES


def test_those_who_are_furthest_from_their_limit_are_forgotten_first() -> None:
    store = CounterStore("guesses", max_entries=100)
    for number in range(100):
        for _ in range(1 + number % 4):
            store.count(f"guesser {number}", limit=5, seconds=MINUTE)

    store.count("one more", limit=5, seconds=MINUTE)

    assert store.count("guesser 3", limit=5, seconds=MINUTE) == 5
    assert store.count("guesser 0", limit=5, seconds=MINUTE) == 1


def test_a_store_full_of_those_who_have_to_wait_forgets_none_and_takes_no_more() -> None:
    store = CounterStore("guesses", max_entries=50)
    for number in range(50):
        for _ in range(5):
            store.count(f"guesser {number}", limit=5, seconds=MINUTE)

    assert [store.count("one more", limit=5, seconds=MINUTE) for _ in range(3)] == [1, 1, 1]
    assert all(store.count(f"guesser {number}", limit=5, seconds=MINUTE) == 6 for number in range(50))
    assert len(store) == 50


def test_what_is_over_is_forgotten_before_anything_else() -> None:
    store = CounterStore("guesses", max_entries=10)
    for number in range(10):
        for _ in range(5):
            store.count(f"guesser {number}", limit=5, seconds=0)

    assert store.count("one more", limit=5, seconds=MINUTE) == 1
    assert len(store) == 1


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("x" * 1000, "x" * 64),
    ],
)
def test_an_ipv6_address_is_counted_as_its_network(address: str, network: str) -> None:
    assert network_of(address) == network


def guess_a_key(address: str) -> int:
    headers = [("Authorization", "Bearer gwa_guess"), ("X-Forwarded-For", address)]
    return exchange("GET", "/v1/organization/admin_api_keys", headers).status


def test_bad_keys_from_all_addresses_of_a_network_are_counted_together(db: None, settings: Any) -> None:
    settings.GATEWAY_TRUSTED_PROXIES, settings.GATEWAY_FAILED_LOGINS_PER_MINUTE = 1, 5

    tried = [guess_a_key(f"2001:db8::{number:x}") for number in range(10)]

    assert tried == [401] * 5 + [429] * 5
    assert guess_a_key("2001:db8:0:1::1") == 401


@pytest.mark.slow
def test_bad_keys_from_many_networks_do_not_end_somebodys_wait_to_log_in(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.GATEWAY_TRUSTED_PROXIES = 1
    window = Window("address", 3, MINUTE)
    for _ in range(4):
        window.count("2001:db8:9:9::/64")
    monkeypatch.setattr(counters.store_of("failed-login"), "_max_entries", 50)

    # More than fit, each from a network of its own.
    assert {guess_a_key(f"2001:db8:{number:x}::1") for number in range(100)} == {401}

    assert window.count("2001:db8:9:9::/64") > 0
    window.take_back("2001:db8:9:9::/64")


def log_in(address: str) -> int:
    typed = {"username": "ada", "password": "a guess"}
    answer = Client().post("/admin/login/", typed, headers={"X-Forwarded-For": address})
    return answer.status_code


@pytest.mark.slow
def test_bad_keys_from_the_same_network_do_not_end_its_wait_to_log_in(db: None, settings: Any) -> None:
    settings.GATEWAY_TRUSTED_PROXIES = 1
    tried = [log_in("2001:db8::1") for _ in range(settings.GATEWAY_LOGIN_TRIES + 1)]
    assert tried[-1] == 429

    for number in range(420):
        guess_a_key(f"2001:db8::{number:x}")

    assert log_in("2001:db8::2") == 429
