"""After every test here, the books must balance."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from billing.ledger.ledger import Ledger, close_ledger
from billing.ledger.operations import LedgerLimits
from tests.billing.factories import Customer, make_customer
from tests.billing.ledger_processes import LedgerProcesses
from tests.harness.ledger_checks import assert_books_balance

DATABASE_FIXTURES = ("transactional_db", "db")


@pytest.fixture(autouse=True)
def _books_balance(request: pytest.FixtureRequest) -> Iterator[None]:
    used = [name for name in DATABASE_FIXTURES if name in request.fixturenames]
    if not used:
        yield
        return
    # Asked for here, so that it outlives this fixture: the check comes before the tables are emptied.
    request.getfixturevalue(used[0])
    yield
    close_ledger(5)
    assert_books_balance()


@pytest.fixture
def make_ledger(transactional_db: None) -> Iterator[Callable[..., Ledger]]:
    """Ledgers with limits of one's choice, each with a thread of its own, like another process."""
    made: list[Ledger] = []

    def make(**limits: int) -> Ledger:
        made.append(Ledger(LedgerLimits(**limits)))
        return made[-1]

    yield make
    for ledger in made:
        assert ledger.close(5) == 0


@pytest.fixture
def ledger(make_ledger: Callable[..., Ledger]) -> Ledger:
    return make_ledger()


@pytest.fixture
def acme(transactional_db: None) -> Customer:
    return make_customer(credit=1_000)


@pytest.fixture
def is_postgres() -> bool:
    return connection.vendor == "postgresql"


@pytest.fixture(scope="session")
def _processes(django_db_setup: None) -> Iterator[LedgerProcesses]:
    with LedgerProcesses() as processes:
        yield processes


@pytest.fixture
def processes(_processes: LedgerProcesses, process_environment: dict[str, str]) -> LedgerProcesses:
    """Four processes that hold credit on command."""
    _processes.ensure_started(process_environment)
    return _processes
