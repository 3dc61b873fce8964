"""A customer with credit for servers that run beside the test, and what node needs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from billing.ledger.ledger import close_ledger
from organization.models import Project
from tests.harness.ledger_checks import decide_everything
from tests.harness.live_server import ROOT
from tests.harness.workers import first_of_the_workers, run_directory
from tests.inference.customer import ApiCustomer

SCRIPTS = ROOT / "tests" / "node"
INSTALL_SECONDS = 120


@pytest.fixture
def customer(process_environment: dict[str, str], project: Project) -> Iterator[ApiCustomer]:
    yield ApiCustomer.of(project)
    decide_everything()
    assert close_ledger(5) == 0


# --- npm ---------------------------------------------------------------------------------------------


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


def _install(npm: str, home: Path) -> None:
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm has not fetched the packages in {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm cannot fetch the packages: {done.stderr[-300:]}")
