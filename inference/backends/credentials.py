"""What a backend's API key must look like before it becomes a header."""

from __future__ import annotations


def checked_credential(value: str) -> str:
    """The API key unchanged. ValueError, without the key in it, for what could not be sent as a header."""
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("An API key of a backend is printable ASCII without spaces.")
    return value
