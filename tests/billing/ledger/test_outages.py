from __future__ import annotations

import json
import subprocess
import sys

import pytest


def test_a_database_that_stops_and_crashes_loses_nothing(database_vendor: str) -> None:
    if database_vendor != "postgresql":
        pytest.skip("SQLite has no server to stop")

    done = subprocess.run(
        [sys.executable, "-m", "tests.billing.ledger.outage", "--crashes", "5"],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["refused"] == 3
    assert report["refused_in"] < 3.5
    assert report["settled"] == 40
    assert report["settled_in"] < 5
    assert report["admitted_in"] < 5
    assert report["acknowledged"] > 0
    assert report["left_undone"] == 0
    assert report["unsettled"] == 0
