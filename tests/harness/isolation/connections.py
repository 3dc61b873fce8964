"""Database connections of threads that a test starts."""

from __future__ import annotations

from django.db import connections


def close_connections() -> None:
    """Close what the calling thread opened, so that no connection outlives the thread."""
    connections.close_all()
