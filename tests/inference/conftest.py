"""What a process remembers of the catalog must not outlive a test. After costs, the books balance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billing.ledger import close_ledger
from inference import authentication, catalog
from inference.activity_writer import writer
from organization.models import Project
from policies.epochs import reader
from policies.verdict_writer import writer as verdicts
from tests.inference.chat_cast import Gateway
from tests.ledger_checks import assert_books_balance


@pytest.fixture(autouse=True)
def _fresh_catalog() -> Iterator[None]:
    catalog.forget()
    authentication.forget()
    yield
    catalog.forget()
    authentication.forget()


@pytest.fixture
def gateway(transactional_db: None, project: Project) -> Iterator[Gateway]:
    """Acme's application, with credit."""
    yield Gateway.of(project)
    writer.close(5)
    verdicts.close(5)
    reader.close()
    assert close_ledger(5) == 0
    assert_books_balance()
