from __future__ import annotations

import json
import subprocess
import sys

KILLS = 20


def test_kill_9_loses_nothing(process_environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.billing.ledger.crash_loop", "--here", "--kills", str(KILLS)],
        env=process_environment,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] >= KILLS
    assert report["acknowledged"] > KILLS
    assert sum(report["swept"].values()) > 0
