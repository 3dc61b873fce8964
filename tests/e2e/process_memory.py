"""How much memory a server under test takes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness.live_server import LiveServer


def megabytes(running: LiveServer) -> float:
    """Resident memory of the server's own process."""
    pages = int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
