"""Requests are spread over the deployments of a model, and kept from those that fail."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from billing.money import Price
from inference.catalog.served_models import ServedModel, Target
from inference.serving.load_balancing import FAILURES_TO_OPEN, OPEN_SECONDS, Deployments

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
def deployments(clock: Clock) -> Deployments:
    return Deployments(clock=clock, chance=random.Random(7).random)


def served(*weights: int) -> ServedModel:
    return ServedModel(
        id="m",
        price=Price(),
        context_length=1,
        max_output_length=1,
        tokenizer="",
        input_modalities=("text",),
        targets=tuple(Target(number, f"b/{number}", NOTHING, "m") for number in range(1, len(weights) + 1)),
        weights=weights,
    )


def numbers(targets: list[Target]) -> list[int]:
    return [target.deployment_id for target in targets]


def affinities(count: int) -> list[bytes]:
    return [number.to_bytes(32, "big") for number in range(count)]


def fail(deployments: Deployments, target: Target, times: int = FAILURES_TO_OPEN) -> None:
    for _ in range(times):
        deployments.note_failure(target)


def test_it_works(deployments: Deployments) -> None:
    assert numbers(deployments.in_order(served(100), None)) == [1]
    assert sorted(numbers(deployments.in_order(served(1, 1, 1), b"x"))) == [1, 2, 3]


def test_the_same_affinity_finds_the_same_place_in_every_process(deployments: Deployments) -> None:
    other_process = Deployments(chance=random.Random(8).random)
    model = served(100, 100, 100)

    for affinity in affinities(50):
        order = numbers(deployments.in_order(model, affinity))
        assert order == numbers(deployments.in_order(model, affinity))
        assert order == numbers(other_process.in_order(model, affinity))


@pytest.mark.parametrize("with_affinity", [True, False])
def test_first_places_follow_the_weights(deployments: Deployments, with_affinity: bool) -> None:
    model = served(100, 300, 600)

    first = Counter(
        deployments.in_order(model, affinity if with_affinity else None)[0].deployment_id
        for affinity in affinities(10_000)
    )

    assert first[1] == pytest.approx(1_000, abs=150)
    assert first[2] == pytest.approx(3_000, abs=250)
    assert first[3] == pytest.approx(6_000, abs=250)


def test_one_that_leaves_moves_only_its_own_requests(deployments: Deployments) -> None:
    model = served(100, 100, 100)
    smaller = ServedModel(
        id=model.id,
        price=model.price,
        context_length=1,
        max_output_length=1,
        tokenizer="",
        input_modalities=("text",),
        targets=model.targets[:2],
        weights=model.weights[:2],
    )

    for affinity in affinities(500):
        before = numbers(deployments.in_order(model, affinity))
        after = numbers(deployments.in_order(smaller, affinity))
        assert after == [number for number in before if number != 3]


def test_one_that_keeps_failing_is_asked_last(deployments: Deployments) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]

    fail(deployments, favourite, FAILURES_TO_OPEN - 1)
    assert deployments.in_order(model, b"x")[0] is favourite
    fail(deployments, favourite, 1)

    assert numbers(deployments.in_order(model, b"x")) == [1, 2]


def test_a_success_in_between_counts_anew(deployments: Deployments) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]

    fail(deployments, favourite, FAILURES_TO_OPEN - 1)
    deployments.note_success(favourite)
    fail(deployments, favourite, FAILURES_TO_OPEN - 1)

    assert deployments.in_order(model, b"x")[0] is favourite


def test_when_all_fail_all_are_still_asked(deployments: Deployments) -> None:
    model = served(1, 1_000_000)
    for target in model.targets:
        fail(deployments, target)

    assert numbers(deployments.in_order(model, b"x")) == [2, 1]


def test_after_a_while_one_request_finds_out(deployments: Deployments, clock: Clock) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]
    fail(deployments, favourite)

    clock.now += OPEN_SECONDS - 0.001
    assert deployments.in_order(model, b"x")[0] is not favourite
    clock.now += 0.001
    assert deployments.in_order(model, b"x")[0] is favourite
    # The others wait for what becomes of it.
    assert deployments.in_order(model, b"x")[0] is not favourite
    assert deployments.in_order(model, b"y")[0] is not favourite

    deployments.note_success(favourite)
    assert deployments.in_order(model, b"x")[0] is favourite
    assert deployments.in_order(model, b"x")[0] is favourite


def test_a_trial_that_fails_closes_it_at_once(deployments: Deployments, clock: Clock) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]
    fail(deployments, favourite)
    clock.now += OPEN_SECONDS
    deployments.in_order(model, b"x")

    clock.now += 3
    fail(deployments, favourite, 1)
    clock.now += OPEN_SECONDS - 0.001

    assert deployments.in_order(model, b"x")[0] is not favourite


def test_a_trial_that_nobody_reports_is_repeated(deployments: Deployments, clock: Clock) -> None:
    model = served(1, 1_000_000)
    favourite = model.targets[1]
    fail(deployments, favourite)
    clock.now += OPEN_SECONDS
    assert deployments.in_order(model, b"x")[0] is favourite

    clock.now += OPEN_SECONDS

    assert deployments.in_order(model, b"x")[0] is favourite


def test_a_second_choice_is_no_trial(deployments: Deployments, clock: Clock) -> None:
    model = served(1_000_000, 1)
    second = model.targets[1]
    fail(deployments, second)
    clock.now += OPEN_SECONDS

    assert deployments.in_order(model, b"x")[0] is not second
    fail(deployments, model.targets[0])

    assert deployments.in_order(model, b"x")[0] is second
