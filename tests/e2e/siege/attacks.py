"""The table of attacks: what each does once, how many attackers do it at a time, and how long they pause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.e2e.siege import body_attacks, console_attacks, head_attacks, stream_attacks
from tests.e2e.siege.target import Target

# What became of one attempt, in a word or a status.
Attempt = Callable[[Target], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One way of keeping others waiting."""

    name: str
    attempt: Attempt
    attackers: int = 1
    pause_seconds: float = 0.2


ATTACKS = (
    # Anybody.
    Attack("a header value without end", head_attacks.endless_header_value),
    Attack("header fields without end", head_attacks.endless_header_fields),
    Attack("a request line without end", head_attacks.endless_request_line),
    Attack("connections that send nothing", head_attacks.silent_connection, attackers=300, pause_seconds=0),
    Attack("a head, one byte a second", head_attacks.dripping_head, attackers=100, pause_seconds=0),
    Attack("a body, one byte a second", head_attacks.dripping_body, attackers=20, pause_seconds=0),
    Attack("requests whose answers are never read", head_attacks.pipelined_and_unread, attackers=10),
    Attack("malformed HTTP", head_attacks.malformed, attackers=2, pause_seconds=0.02),
    Attack("wrong keys", head_attacks.wrong_key, attackers=2, pause_seconds=0.02),
    Attack("foreign Host headers", head_attacks.foreign_host, pause_seconds=0.05),
    Attack("readiness probes", head_attacks.readiness, attackers=4, pause_seconds=0.05),
    Attack("a log-in name of 9 MB", console_attacks.huge_login_name, pause_seconds=1.0),
    # A customer without credit.
    Attack("3,000,000 objects in a content part", body_attacks.many_objects, pause_seconds=1.0),
    Attack("350,000 empty content parts", body_attacks.many_parts, pause_seconds=1.0),
    Attack("a tool with 2,900,000 objects in its schema", body_attacks.large_tool, pause_seconds=1.0),
    Attack("330,000 messages", body_attacks.many_messages, pause_seconds=1.0),
    Attack("9 MB of text to count", body_attacks.long_text, attackers=2, pause_seconds=1.0),
    # A customer with credit.
    Attack("as many tiny messages as are allowed", body_attacks.allowed_messages, attackers=2),
    Attack(
        "a flooding backend, clients that do not read",
        stream_attacks.flooded_and_unread,
        attackers=100,
        pause_seconds=0,
    ),
    Attack("a flooding backend, answered as JSON", stream_attacks.flooded_json, attackers=2),
    Attack("closed tabs", stream_attacks.closed_tab, attackers=4, pause_seconds=0.1),
    Attack("backends that misbehave", stream_attacks.misbehaving_backend, attackers=4, pause_seconds=0.05),
    # An administrator and a read-only person of the console.
    Attack("an object of 900,000 names", body_attacks.many_names, pause_seconds=1.0),
    Attack("a regular expression in a list's address", console_attacks.regular_expression, pause_seconds=0.5),
    Attack("a long search in a list", console_attacks.long_search, pause_seconds=0.5),
)
