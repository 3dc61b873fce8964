"""The trail can be added to and never changed."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, transaction

from organization.audit import trail
from organization.models import AuditEvent, Organization
from tests.factories import SOMEONE


def test_an_event_cannot_be_edited_or_deleted(acme: Organization) -> None:
    event = AuditEvent.objects.get()

    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        AuditEvent.objects.filter(pk=event.pk).update(actor_label="someone else")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        event.delete()
    assert AuditEvent.objects.get().actor_label == event.actor_label


def test_an_event_goes_with_the_change_that_it_tells_of(acme: Organization) -> None:
    before = AuditEvent.objects.count()

    with transaction.atomic():
        trail.record(SOMEONE, "test", acme, organization=acme)
        transaction.set_rollback(True)

    assert AuditEvent.objects.count() == before
