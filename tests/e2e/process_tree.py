"""The processes below a server, and their ends."""

from __future__ import annotations

import os
import select
from pathlib import Path

END_SECONDS = 30


def children_of(process_id: int) -> list[int]:
    by_thread = Path(f"/proc/{process_id}/task").glob("*/children")
    return [int(each) for children in by_thread for each in children.read_text().split()]


def command_of(process_id: int) -> str:
    return Path(f"/proc/{process_id}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def workers_of(process_id: int) -> list[int]:
    """The processes that serve below a `serve --workers N`."""
    return [each for each in children_of(process_id) if "spawn_main" in command_of(each)]


class Watched:
    """A process that is waited for by its descriptor, so that its id cannot come to mean another."""

    def __init__(self, process_id: int) -> None:
        self.process_id = process_id
        self._descriptor = os.pidfd_open(process_id)

    def has_ended(self, seconds: float = 0.0) -> bool:
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def wait_for_end(self, seconds: float = END_SECONDS) -> None:
        has_ended = self.has_ended(seconds)
        os.close(self._descriptor)
        assert has_ended, f"process {self.process_id} outlived the server"
