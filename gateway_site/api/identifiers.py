"""Identifiers in the form in which clients write them."""

from __future__ import annotations

import uuid


def uuid_or_none(text: str) -> uuid.UUID | None:
    """The uuid that `text` spells in its usual form. Python would also take braces and `urn:uuid:`."""
    try:
        value = uuid.UUID(text)
    except ValueError:
        return None
    return value if str(value) == text.lower() else None
