"""The worker processes of one test run: which tests go to one of them together, and what they share."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

# Tests that share what takes seconds to make. The mark `xdist_group`, pytest-xdist's own way to say so, is
# silently without effect with a pytest that keeps the ids of tests where xdist does not write them.
TOGETHER = (
    "tests/e2e/console/",
    "tests/billing/ledger/test_parallel_admission.py",
    "tests/gateway_site/quickstart/test_local_model.py",
    "tests/harness/test_services.py",
)


class GroupedScheduling(LoadScopeScheduling):
    """Groups first, the largest before all, so that none is left to one worker at the end."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for group in TOGETHER if nodeid.startswith(group)), nodeid)


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
