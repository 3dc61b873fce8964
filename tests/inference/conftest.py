"""Acme's application. After costs, the books balance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from organization.models import Project
from tests.inference.customer import Gateway, gateway_of


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
