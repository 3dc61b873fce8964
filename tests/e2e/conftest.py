"""A customer with credit for servers that run beside the test, and what node needs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from billing.ledger.ledger import close_ledger
from billing.ledger.sweeper import sweep
from organization.models import Project
from tests.harness.ledger_checks import assert_books_balance
from tests.harness.live_server import ROOT
from tests.inference.customer import Gateway

SCRIPTS = ROOT / "tests" / "node"
INSTALL_SECONDS = 120


@pytest.fixture
def gateway(process_environment: dict[str, str], project: Project) -> Iterator[Gateway]:
    yield Gateway.of(project)
    decide_everything()
    assert close_ledger(5) == 0


def decide_everything() -> None:
    """As if every lease had run out: whatever a server left behind is decided now. Then the books balance."""
    later = timezone.now() + timedelta(seconds=settings.GATEWAY_LEASE_SECONDS + 10)
    sweep(later)
    assert_books_balance(later)


# --- npm ---------------------------------------------------------------------------------------------


def run_directory() -> Path:
    """What all workers of this test run have in common."""
    own = Path(os.environ["GATEWAY_DATA_DIR"])
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def node_home() -> Path:
    """A directory with our scripts and the packages they use, installed by whichever worker comes first."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    home = run_directory() / "node"
    with first_of_the_workers(home) as is_first:
        if is_first:
            shutil.copytree(SCRIPTS, home, dirs_exist_ok=True)
            _install(npm, home)
    return home


@contextlib.contextmanager
def first_of_the_workers(made: Path) -> Iterator[bool]:
    """Whether nobody has made it yet; whoever comes second waits until it is there."""
    done = made.with_suffix(".done")
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not done.exists()
        done.touch()


def _install(npm: str, home: Path) -> None:
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm has not fetched the packages in {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm cannot fetch the packages: {done.stderr[-300:]}")
