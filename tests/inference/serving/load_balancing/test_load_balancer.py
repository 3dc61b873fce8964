"""Requests are spread over the deployments of a model, and kept from those that fail."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import Any

import pytest

from billing.prices.card import CardVersion, PriceCard
from inference.catalog.served_models import ServedModel, Target
from inference.serving.load_balancing.circuit_breaker import FAILURES_TO_OPEN, OPEN_SECONDS
from inference.serving.load_balancing.load_balancer import LoadBalancer

NOTHING: Any = None


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def balancer(clock: Clock) -> LoadBalancer:
    return LoadBalancer(clock=clock, chance=random.Random(7).random)


def served(*weights: int) -> ServedModel:
    return ServedModel(
        id="m",
        version=CardVersion(uuid.uuid4(), PriceCard.flat(prompt=0, completion=0)),
        context_length=1,
        max_output_length=1,
        tokenizer="o200k_base",
        is_tokenizer_exact=True,
        input_modalities=("text",),
        targets=tuple(Target(number, f"b/{number}", NOTHING, "m") for number in range(1, len(weights) + 1)),
        weights=weights,
    )


def numbers(targets: list[Target]) -> list[int]:
    return [target.deployment_id for target in targets]


def affinities(count: int) -> list[bytes]:
    return [number.to_bytes(32, "big") for number in range(count)]


def fail(balancer: LoadBalancer, target: Target, times: int = FAILURES_TO_OPEN) -> None:
    for _ in range(times):
        balancer.record_failure(target)


def test_it_works(balancer: LoadBalancer) -> None:
    assert numbers(balancer.targets_in_order(served(100), None)) == [1]
    assert sorted(numbers(balancer.targets_in_order(served(1, 1, 1), b"x"))) == [1, 2, 3]


def test_the_same_affinity_finds_the_same_deployment_in_every_process(balancer: LoadBalancer) -> None:
    other_process = LoadBalancer(chance=random.Random(8).random)
    model = served(100, 100, 100)

    for affinity in affinities(50):
        order = numbers(balancer.targets_in_order(model, affinity))
        assert order == numbers(balancer.targets_in_order(model, affinity))
        assert order == numbers(other_process.targets_in_order(model, affinity))


@pytest.mark.parametrize("with_affinity", [True, False])
def test_first_choices_follow_the_weights(balancer: LoadBalancer, with_affinity: bool) -> None:
    model = served(100, 300, 600)

    first = Counter(
        balancer.targets_in_order(model, affinity if with_affinity else None)[0].deployment_id
        for affinity in affinities(10_000)
    )

    assert first[1] == pytest.approx(1_000, abs=150)
    assert first[2] == pytest.approx(3_000, abs=250)
    assert first[3] == pytest.approx(6_000, abs=250)


def test_a_deployment_that_leaves_moves_only_its_own_requests(balancer: LoadBalancer) -> None:
    model = served(100, 100, 100)
    smaller = ServedModel(
        id=model.id,
        version=model.version,
        context_length=1,
        max_output_length=1,
        tokenizer="o200k_base",
        is_tokenizer_exact=True,
        input_modalities=("text",),
        targets=model.targets[:2],
        weights=model.weights[:2],
    )

    for affinity in affinities(500):
        before = numbers(balancer.targets_in_order(model, affinity))
        after = numbers(balancer.targets_in_order(smaller, affinity))
        assert after == [number for number in before if number != 3]


def test_an_open_circuit_is_asked_last(balancer: LoadBalancer) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]

    fail(balancer, favourite, FAILURES_TO_OPEN - 1)
    assert balancer.targets_in_order(model, b"x")[0] is favourite
    fail(balancer, favourite, 1)

    assert numbers(balancer.targets_in_order(model, b"x")) == [1, 2]


def test_a_success_in_between_counts_anew(balancer: LoadBalancer) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]

    fail(balancer, favourite, FAILURES_TO_OPEN - 1)
    balancer.record_success(favourite)
    fail(balancer, favourite, FAILURES_TO_OPEN - 1)

    assert balancer.targets_in_order(model, b"x")[0] is favourite


def test_when_all_fail_all_are_still_asked(balancer: LoadBalancer) -> None:
    model = served(1, 1_000_000)
    for target in model.targets:
        fail(balancer, target)

    assert numbers(balancer.targets_in_order(model, b"x")) == [2, 1]


def test_after_a_while_one_request_tries_an_open_circuit(balancer: LoadBalancer, clock: Clock) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]
    fail(balancer, favourite)

    clock.now += OPEN_SECONDS - 0.001
    assert balancer.targets_in_order(model, b"x")[0] is not favourite
    clock.now += 0.001
    assert balancer.targets_in_order(model, b"x")[0] is favourite
    # The others wait for what becomes of it.
    assert balancer.targets_in_order(model, b"x")[0] is not favourite
    assert balancer.targets_in_order(model, b"y")[0] is not favourite

    balancer.record_success(favourite)
    assert balancer.targets_in_order(model, b"x")[0] is favourite
    assert balancer.targets_in_order(model, b"x")[0] is favourite


def test_a_trial_that_fails_opens_the_circuit_at_once(balancer: LoadBalancer, clock: Clock) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]
    fail(balancer, favourite)
    clock.now += OPEN_SECONDS
    balancer.targets_in_order(model, b"x")

    clock.now += 3
    fail(balancer, favourite, 1)
    clock.now += OPEN_SECONDS - 0.001

    assert balancer.targets_in_order(model, b"x")[0] is not favourite


def test_a_trial_that_nobody_reports_is_repeated(balancer: LoadBalancer, clock: Clock) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]
    fail(balancer, favourite)
    clock.now += OPEN_SECONDS
    assert balancer.targets_in_order(model, b"x")[0] is favourite

    clock.now += OPEN_SECONDS

    assert balancer.targets_in_order(model, b"x")[0] is favourite


def test_a_second_choice_is_no_trial(balancer: LoadBalancer, clock: Clock) -> None:
    model = served(1_000_000, 1)
    second = model.targets[1]
    fail(balancer, second)
    clock.now += OPEN_SECONDS

    assert balancer.targets_in_order(model, b"x")[0] is not second
    fail(balancer, model.targets[0])

    assert balancer.targets_in_order(model, b"x")[0] is second
