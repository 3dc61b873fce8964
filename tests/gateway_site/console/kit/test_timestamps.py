"""A person reads when something was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway_site.console.kit.timestamps import relative, timestamp

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds_ago", "said"),
    [
        (0, "now"),
        (1, "1 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (3_599, "59 min ago"),
        (3_600, "1 h ago"),
        (86_400, "1 d ago"),
        (40 * 86_400, "40 d ago"),
        (-90, "in 1 min"),
    ],
)
def test_it_says_how_long_ago(seconds_ago: int, said: str) -> None:
    assert relative(NOW - timedelta(seconds=seconds_ago), NOW) == said


def test_it_says_the_time_in_utc() -> None:
    assert "2026-03-01 12:00:00 UTC" in timestamp(NOW)


def test_what_never_was_is_said_so_and_inert() -> None:
    assert "never" in timestamp(None)
    assert "&lt;b&gt;" in timestamp(None, empty="<b>")
