"""One console with one browser for all tests of this directory: they take seconds to make."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import setup_databases, teardown_databases
from pytest_django import DjangoDbBlocker

from tests.e2e.console.console_data import create_console_data, make_requests
from tests.e2e.console.driver import CHROMIUM, Console, browser
from tests.e2e.console.site import Site
from tests.harness.isolation.table_reset import tables
from tests.harness.ledger_checks import decide_everything
from tests.harness.live_server import ROOT, live_server
from tests.harness.services import environment_of_process
from tests.harness.workers import first_of_the_workers, run_directory


@pytest.fixture(scope="package")
def shared_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database for all tests at once; at the end it is as a test leaves it."""
    with django_db_blocker.unblock():
        own = None
        if connection.settings_dict["NAME"] != connection.settings_dict["TEST"]["NAME"]:
            # Nothing was made if all of a run's tests share it like this.
            own = setup_databases(verbosity=0, interactive=False, aliases={"default": connection})
        before = tables()
        yield
        before.restore()
        if own is not None:
            teardown_databases(own, verbosity=0)


def collected_files(environment: dict[str, str]) -> Path:
    """What pages load beside themselves, collected once in a run."""
    root = run_directory() / "collected"
    with first_of_the_workers(root) as is_first:
        if is_first:
            collect = [sys.executable, "manage.py", "collectstatic", "--no-input", "-v0"]
            told = {**environment, "GATEWAY_STATIC_ROOT": str(root)}
            subprocess.run(collect, cwd=ROOT, env=told, check=True)
    return root


@pytest.fixture(scope="package")
def site(shared_database: None) -> Iterator[Site]:
    """Each test takes rows of its own. At the end the books balance."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium on PATH")
    with first_of_the_workers(run_directory() / "site") as is_first:
        assert is_first, "all tests of the console are for one worker: see `harness.workers`"
    with pytest.MonkeyPatch.context() as patch:
        environment = {**environment_of_process(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        environment["GATEWAY_STATIC_ROOT"] = str(collected_files(environment))
        data = create_console_data()
        with live_server(environment, settings_module="tests.settings") as server:
            make_requests(data, server.address)
            # The browser's driver keeps a loop in this thread, which Django takes for asynchronous code.
            patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
            with browser() as opened:
                yield Site(data, server, opened)
    decide_everything()


@pytest.fixture(scope="package")
def console(site: Site, axe: Path) -> Iterator[Console]:
    """The operator's window, logged in once."""
    window = site.window(axe)
    window.log_in()
    window.check("overview")
    yield window
    window.page.context.close()


@pytest.fixture(scope="package")
def axe(node_home: Path) -> Path:
    return node_home / "node_modules" / "axe-core" / "axe.min.js"
