"""Policies at any stage of their lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from organization.models import Organization
from policies import services
from policies.enforcement.publication_cache import reader
from policies.models import Policy, Verdict
from policies.verdicts.writer import writer
from tests.conftest import SOMEONE

PHRASE = "internal only"
RULE = f'Does the text contain "{PHRASE}"?'


@pytest.fixture(autouse=True)
def _patient_writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Verdicts are written when a test says so."""
    monkeypatch.setattr(writer, "_start", lambda: None)
    yield
    writer._waiting.clear()
    reader.close()


def make_policy(organization: Organization, **fields: Any) -> Policy:
    return services.create_policy(
        organization=organization, actor=SOMEONE, **{"name": "Internal", "rule": RULE, **fields}
    )


def make_published(organization: Organization, mode: str = "enforcing", **fields: Any) -> Policy:
    return services.publish_policy(policy=make_policy(organization, **fields), mode=mode, actor=SOMEONE)


@pytest.fixture
def policy(acme: Organization) -> Policy:
    return make_policy(acme)


@pytest.fixture
def published(acme: Organization) -> Policy:
    return make_published(acme)


def noted() -> list[Verdict]:
    """The verdicts that wait to be written."""
    return [note.row() for note in writer._waiting]
