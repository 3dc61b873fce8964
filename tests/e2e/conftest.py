"""A customer with credit for servers that run beside the test, and the console with its browser."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test.utils import setup_databases, teardown_databases
from django.utils import timezone
from playwright.sync_api import Browser
from pytest_django import DjangoDbBlocker

from billing.ledger import close_ledger
from billing.sweeper import sweep
from organization.models import Project
from tests.e2e.console_driver import CHROMIUM, Console, browser, new_console
from tests.e2e.console_world import World, build_world, make_requests
from tests.inference.chat_cast import Gateway
from tests.ledger_checks import assert_books_balance
from tests.live import ROOT, LiveServer, live_server
from tests.services import environment_of_process

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
    with _first_of_the_workers(home) as is_first:
        if is_first:
            shutil.copytree(SCRIPTS, home, dirs_exist_ok=True)
            _install(npm, home)
    return home


@contextlib.contextmanager
def _first_of_the_workers(made: Path) -> Iterator[bool]:
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


# --- the console -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A running console, what is in it, and a browser."""

    world: World
    server: LiveServer
    browser: Browser

    def window(self, axe: Path | None = None) -> Console:
        return new_console(self.browser, self.server.address, axe)


@pytest.fixture(scope="module")
def module_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database for all tests of a module at once; at the end it is as a test leaves it."""
    with django_db_blocker.unblock():
        own = None
        if connection.settings_dict["NAME"] != connection.settings_dict["TEST"]["NAME"]:
            # Nothing was made if all of a run's tests share it like this.
            own = setup_databases(verbosity=0, interactive=False, aliases={"default": connection})
        yield
        if own is None:
            call_command("flush", verbosity=0, interactive=False)
        else:
            teardown_databases(own, verbosity=0)


def collected_files(environment: dict[str, str]) -> Path:
    """What pages load beside themselves, collected once in a run."""
    root = run_directory() / "collected"
    with _first_of_the_workers(root) as is_first:
        if is_first:
            collect = [sys.executable, "manage.py", "collectstatic", "--no-input", "-v0"]
            told = {**environment, "GATEWAY_STATIC_ROOT": str(root)}
            subprocess.run(collect, cwd=ROOT, env=told, check=True)
    return root


@pytest.fixture(scope="module")
def site(module_database: None) -> Iterator[Site]:
    """One for all tests of a module: it takes seconds to make. Each test takes rows of its own."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium on PATH")
    with pytest.MonkeyPatch.context() as patch:
        environment = {**environment_of_process(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        environment["GATEWAY_STATIC_ROOT"] = str(collected_files(environment))
        world = build_world()
        with live_server(environment, settings_module="tests.settings") as server:
            make_requests(world, server.address)
            # The browser's driver keeps a loop in this thread, which Django takes for asynchronous code.
            patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
            with browser() as opened:
                yield Site(world, server, opened)
    decide_everything()
