"""Roll-ups that are killed with -9 count no cost twice and lose none: the short form of `crash_loop`."""

from __future__ import annotations

import json
import subprocess
import sys

KILLS = 20


def test_kill_9_counts_no_cost_twice_and_loses_none(process_environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.billing.reports.crash_loop", "--kills", str(KILLS)],
        env=process_environment,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == KILLS
    assert report["moved_before_the_end"] > 0
