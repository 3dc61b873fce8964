"""What a process remembers of the catalog must not outlive a test. After costs, the books balance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference import authentication, catalog
from inference.activity_writer import writer
from organization.models import Project
from tests.inference.chat_cast import Gateway, gateway_of


@pytest.fixture(autouse=True)
def _fresh_catalog() -> Iterator[None]:
    catalog.forget()
    authentication.forget()
    yield
    catalog.forget()
    authentication.forget()
    # It would be found among the rows of the next test, now and then.
    assert not writer._waiting, "a record of a request is still to be written: use the gateway's fixtures"


@pytest.fixture
def gateway(transactional_db: None, project: Project) -> Iterator[Gateway]:
    """Acme's application, with credit."""
    with gateway_of(project) as made:
        yield made


@pytest.fixture
def poor(transactional_db: None, project: Project) -> Iterator[Gateway]:
    """Acme's application, before anybody paid."""
    with gateway_of(project, credit="0") as made:
        yield made
