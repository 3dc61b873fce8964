"""
All attackers, in a process of their own.

    python -m tests.e2e.siege.attackers TARGET SECONDS [WORDS]

TARGET is JSON. With WORDS, only the attacks whose names hold them take part. It prints one JSON object: for
each attack, how often each outcome was seen.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
from collections import Counter

from tests.e2e.siege.attacks import ATTACKS, Attack
from tests.e2e.siege.target import Target

DESCRIPTORS = 4_096
RETRY_SECONDS = 0.1
END_SECONDS = 5.0


async def go_on(attack: Attack, target: Target, seen: Counter[str]) -> None:
    """One attacker, again and again until cancelled."""
    await asyncio.sleep(random.random() * min(2.0, attack.pause_seconds + 0.5))
    while True:
        try:
            outcome = await attack.attempt(target)
        except TimeoutError:
            outcome = "no answer"
        except (OSError, asyncio.IncompleteReadError):
            outcome = "refused or reset"
            await asyncio.sleep(RETRY_SECONDS)
        seen[outcome] += 1
        await asyncio.sleep(attack.pause_seconds)


async def attack_for(target: Target, seconds: float, words: str) -> dict[str, dict[str, int]]:
    attacks = [attack for attack in ATTACKS if words in attack.name]
    seen: dict[str, Counter[str]] = {attack.name: Counter() for attack in attacks}
    tasks = [
        asyncio.create_task(go_on(attack, target, seen[attack.name]))
        for attack in attacks
        for _ in range(attack.attackers)
    ]
    _, still_running = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    failed = [task for task in tasks if task.done()]
    for task in still_running:
        task.cancel()
    await asyncio.wait(tasks, timeout=END_SECONDS)
    for task in failed:
        task.result()  # an attack that is itself broken is a mistake here
    return {name: dict(outcomes) for name, outcomes in seen.items()}


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    seen = asyncio.run(attack_for(Target.loads(sys.argv[1]), float(sys.argv[2]), "".join(sys.argv[3:])))
    sys.stdout.write(f"{json.dumps(seen)}\n")


if __name__ == "__main__":
    main()
