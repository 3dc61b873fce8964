"""
Which deployment of a model answers, and in which order the others are tried.

Requests with the same affinity go to the same deployment, where the prompt's beginning may still be in a
cache; rendezvous hashing moves as few of them as possible when one joins or leaves. The others are spread by
weight. A deployment that failed several times in a row is asked last for a while: each process counts what
it saw itself, so that a broken network path of one process does not close the deployment for all.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the catalog imports what makes targets; this module only orders them
    from inference.catalog.served_models import ServedModel, Target

FAILURES_TO_OPEN = 5
OPEN_SECONDS = 10.0


@dataclass(slots=True)
class Circuit:
    """What this process saw of one deployment since it last answered."""

    failures: int = 0
    opened_at: float | None = None


class Deployments:
    """The circuits of one process. `clock` is monotonic; `chance` gives numbers between 0 and 1."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._circuits: dict[int, Circuit] = {}

    def in_order(self, model: ServedModel, affinity: bytes | None) -> list[Target]:
        """Every target, the one to ask first first; those whose circuit is open after all others."""
        if len(model.targets) == 1:
            return list(model.targets)
        ranked = sorted(
            zip(model.targets, model.weights, strict=True),
            key=lambda pair: self._rank(pair[0], pair[1], affinity),
        )
        order = [target for target, _ in ranked]
        if self._circuits:
            order.sort(key=self._is_open)  # stable: the ranking stays within both halves
            self._begin_trial(order[0])
        return order

    def note_success(self, target: Target) -> None:
        self._circuits.pop(target.deployment_id, None)

    def note_failure(self, target: Target) -> None:
        """Count a failure that was the deployment's own; what a client caused is none."""
        circuit = self._circuits.setdefault(target.deployment_id, Circuit())
        circuit.failures += 1
        if circuit.failures >= FAILURES_TO_OPEN:
            circuit.opened_at = self._clock()

    def _rank(self, target: Target, weight: int, affinity: bytes | None) -> float:
        # The time until a first event that comes at a rate of `weight`: the smallest of several such times
        # belongs to each with a probability in proportion to its weight.
        return -math.log(self._fraction(target, affinity)) / weight

    def _fraction(self, target: Target, affinity: bytes | None) -> float:
        """In (0, 1]: the same for the same affinity and deployment in every process, else by chance."""
        if affinity is None:
            return 1.0 - self._chance()
        digest = hashlib.blake2b(
            target.deployment_id.to_bytes(8, "big"), key=hashlib.sha256(affinity).digest(), digest_size=8
        ).digest()
        return ((int.from_bytes(digest, "big") >> 11) + 1) / 2**53

    def _is_open(self, target: Target) -> bool:
        circuit = self._circuits.get(target.deployment_id)
        if circuit is None or circuit.opened_at is None:
            return False
        return self._clock() - circuit.opened_at < OPEN_SECONDS

    def _begin_trial(self, target: Target) -> None:
        """
        One request at a time finds out whether a deployment is well again: the circuit counts as open for
        the others until its outcome is noted, or for as long again if it never is.
        """
        circuit = self._circuits.get(target.deployment_id)
        if circuit is not None and circuit.opened_at is not None and not self._is_open(target):
            circuit.opened_at = self._clock()


_deployments = Deployments()
in_order = _deployments.in_order
note_success = _deployments.note_success
note_failure = _deployments.note_failure
