"""
Which deployment of a model answers, and in which order the others are tried.

Requests with the same affinity go to the same deployment, where the prompt's beginning may still be in a
cache; rendezvous hashing moves as few of them as possible when one joins or leaves. The others are spread by
weight. A deployment whose circuit breaker is open is asked last: each process counts the failures that it
saw itself, so that a broken network path of one process does not close the deployment for all.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable

from inference.catalog.served_models import ServedModel, Target
from inference.serving.load_balancing.circuit_breaker import CircuitBreaker


class LoadBalancer:
    """
    Orders deployments by affinity or weight, and by the circuit breakers of this process.

    `clock` is monotonic; `chance` gives numbers between 0 and 1.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._chance = chance
        # By deployment, those that have failed since they last answered.
        self._circuits: dict[int, CircuitBreaker] = {}

    def targets_in_order(self, model: ServedModel, affinity: bytes | None) -> list[Target]:
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
            if circuit := self._circuits.get(order[0].deployment_id):
                circuit.begin_trial(self._clock())
        return order

    def record_success(self, target: Target) -> None:
        """Close the deployment's circuit: what it failed at before is forgotten."""
        self._circuits.pop(target.deployment_id, None)

    def record_failure(self, target: Target) -> None:
        """Count a failure that was the deployment's own; what a client caused is none."""
        circuit = self._circuits.setdefault(target.deployment_id, CircuitBreaker())
        circuit.record_failure(self._clock())

    def forget(self) -> None:
        """Close every circuit, as in a process that has asked nobody yet."""
        self._circuits.clear()

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
        return circuit is not None and circuit.is_open(self._clock())


load_balancer = LoadBalancer()
