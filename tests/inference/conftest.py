"""What a process remembers of the catalog must not outlive a test. After costs, the books balance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference import authentication, catalog
from organization.models import Project
from tests.inference.chat_cast import Gateway, gateway_of


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
    with gateway_of(project) as made:
        yield made
