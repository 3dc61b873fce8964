"""A customer with credit for servers that run beside the test; at its end the books balance."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from billing.ledger import close_ledger
from billing.sweeper import sweep
from organization.models import Project
from tests.inference.chat_cast import Gateway
from tests.ledger_checks import assert_books_balance


@pytest.fixture
def gateway(process_environment: dict[str, str], project: Project) -> Iterator[Gateway]:
    yield Gateway.of(project)
    # As if every lease had run out: whatever a server left behind is decided now.
    later = timezone.now() + timedelta(seconds=settings.GATEWAY_LEASE_SECONDS + 10)
    sweep(later)
    assert_books_balance(later)
    assert close_ledger(5) == 0
