"""
Every attack at once while a watched customer chats, in short.

For longer, and judged by the second: python -m tests.e2e.siege --seconds 60
"""

from __future__ import annotations

import subprocess
import sys

from tests.harness.live_server import ROOT

SECONDS = 16
# Other tests share the cores: here a wait is only to have an end. The long form judges it by the second.
MOST_WAIT_SECONDS = 15
ALL_SECONDS = 240
STOP_SECONDS = 60


def test_a_customer_is_served_while_everything_is_attacked() -> None:
    words = [
        "-m",
        "tests.e2e.siege",
        "--seconds",
        str(SECONDS),
        "--most-wait-seconds",
        str(MOST_WAIT_SECONDS),
    ]
    with subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as siege:
        try:
            said, _ = siege.communicate(timeout=ALL_SECONDS)
        except subprocess.TimeoutExpired:
            siege.terminate()  # and with it what it has started
            said, _ = siege.communicate(timeout=STOP_SECONDS)

    assert siege.returncode == 0, said
