"""Acme's application. After costs, the books balance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from organization.models import Project
from tests.inference.customer import ApiCustomer, customer_of


@pytest.fixture
def customer(transactional_db: None, project: Project) -> Iterator[ApiCustomer]:
    """Acme's application, with credit."""
    with customer_of(project) as made:
        yield made


@pytest.fixture
def poor(transactional_db: None, project: Project) -> Iterator[ApiCustomer]:
    """Acme's application, before anybody paid."""
    with customer_of(project, credit="0") as made:
        yield made
