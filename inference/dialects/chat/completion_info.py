"""What the whole chat completion and every chunk of its stream have in common."""

from __future__ import annotations

from msgspec import Struct


class CompletionInfo(Struct, frozen=True, kw_only=True):
    """What is known of a chat completion before its first token."""

    id: str
    created: int
    model: str
    # Streams only: whether the client asked for the usage record. JSON always has it.
    include_usage: bool = False
    show_reasoning: bool = True
    service_tier: str | None = None
    system_fingerprint: str | None = None
