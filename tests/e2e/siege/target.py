"""The gateway under attack, as the attackers know it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Where it listens, and the credentials that the attackers have."""

    port: int
    # A customer without credit, one with credit, and an administrator.
    poor_key: str
    key: str
    admin_key: str
    # The session of a person of the console who may only look.
    console_cookie: str

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Target:
        return cls(**json.loads(text))
