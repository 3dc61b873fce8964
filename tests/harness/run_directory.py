"""Files that all workers of one test run have in common, made by whichever worker needs them first."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def run_directory() -> Path:
    """What all workers of this test run have in common."""
    own = Path(os.environ["GATEWAY_DATA_DIR"])
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@contextlib.contextmanager
def first_of_the_workers(made: Path) -> Iterator[bool]:
    """Whether nobody has made it yet; whoever comes second waits until it is there."""
    done = made.with_suffix(".done")
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not done.exists()
        done.touch()
