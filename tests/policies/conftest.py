"""Policies at any stage of their lives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from organization.models import Organization
from policies.enforcement.publication_cache import publications
from policies.models import Policy
from policies.verdicts.writer import writer
from tests.policies.factories import make_policy, make_published


@pytest.fixture(autouse=True)
def _patient_writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Verdicts are written when a test says so."""
    monkeypatch.setattr(writer, "_start", lambda: None)
    yield
    writer.discard()
    publications.close()


@pytest.fixture
def policy(acme: Organization) -> Policy:
    return make_policy(acme)


@pytest.fixture
def published(acme: Organization) -> Policy:
    return make_published(acme)
