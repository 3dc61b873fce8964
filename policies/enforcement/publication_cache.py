"""
The cache of published policies: kept by each process, checked against the database by each request.

One thread with one connection does all reading. A request that comes while it reads is served by its next
read, together with all others that came meanwhile: see `attachment` for what that promises.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
import uuid
from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

import msgspec
import psycopg
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from psycopg_pool import PoolTimeout

from gateway_site.api.errors import ApiError, Unavailable
from gateway_site.api.loop_timer import LoopTimer
from gateway_site.database.batch_thread import BatchThread, deliver_in_loops
from gateway_site.database.libpq_pipeline import Pipeline
from gateway_site.database.postgresql.deadlines import deadline
from policies.enforcement.attachment import PolicySnapshot, snapshot_of

logger = logging.getLogger(__name__)

MAX_ORGANIZATIONS = 10_000
# By hand: every request waits for this, and Django's cursor takes four times as long as the statement.
ON_SQLITE = """
SELECT organization_id, value FROM policies_policyepoch
WHERE organization_id IN (SELECT value FROM json_each(?))
"""
ON_POSTGRESQL = """
SELECT json_agg(json_build_array(organization_id, value)) FROM policies_policyepoch
WHERE organization_id = ANY($1::uuid[])
"""
LOST = (DatabaseError, InterfaceError, psycopg.Error, sqlite3.Error, PoolTimeout)
NOTHING: PolicySnapshot = {}

PendingRead: TypeAlias = tuple[uuid.UUID, "asyncio.Future[PolicySnapshot]"]


class PublicationCache:
    """What is in force in each organization, valid for as long as the organization's epoch is the same."""

    def __init__(self) -> None:
        self._thread = BatchThread("policies", self._serve, close=self._close)
        self._timer = LoopTimer(_refuse)
        # The thread's own.
        self._cached: dict[uuid.UUID, tuple[int, PolicySnapshot]] = {}
        self._postgres_epochs = _PostgresEpochs()

    def read(self, organization_id: uuid.UUID) -> asyncio.Future[PolicySnapshot]:
        """Start to read what is in force in the organization, as of this call or later; or Unavailable."""
        answer: asyncio.Future[PolicySnapshot] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve_exception)
        self._thread.submit((organization_id, answer))
        self._timer.add(answer, time.monotonic() + settings.GATEWAY_DATABASE_WAIT_SECONDS)
        return answer

    def close(self, seconds: float = 5.0) -> None:
        """End the thread. The next read starts another."""
        self._thread.stop(seconds)

    def _close(self) -> None:
        self._cached.clear()
        connection.close()

    def _serve(self, batch: list[PendingRead]) -> None:
        wanted = {organization_id for organization_id, _ in batch}
        try:
            found: dict[uuid.UUID, PolicySnapshot] | ApiError = self._read_twice(wanted)
        except LOST as error:
            logger.warning("policies could not be read: %s", type(error).__name__)
            connection.close()
            found = Unavailable()
        # A loop that is closed has nobody left who waits.
        deliver_in_loops(((read[1].get_loop(), read) for read in batch), partial(_answer, found))

    def _read_twice(self, wanted: Iterable[uuid.UUID]) -> dict[uuid.UUID, PolicySnapshot]:
        # One deadline for both: the requests are refused when it is over.
        with deadline(settings.GATEWAY_DATABASE_WAIT_SECONDS):
            try:
                return self._read(wanted)
            except LOST:
                # Most often a connection that the server has closed since.
                connection.close()
                return self._read(wanted)

    def _read(self, wanted: Iterable[uuid.UUID]) -> dict[uuid.UUID, PolicySnapshot]:
        connection.ensure_connection()
        epochs = (
            self._postgres_epochs(wanted) if connection.vendor == "postgresql" else _sqlite_epochs(wanted)
        )
        for organization_id, epoch in epochs.items():
            cached = self._cached.get(organization_id)
            if cached is None or cached[0] != epoch:
                if len(self._cached) >= MAX_ORGANIZATIONS:
                    self._cached.clear()
                # Read after the epoch, so it is at least as new; if newer, the next request reads again.
                self._cached[organization_id] = epoch, snapshot_of(organization_id)
        # Who has no epoch has published nothing.
        return {
            organization_id: self._cached[organization_id][1] if organization_id in epochs else NOTHING
            for organization_id in wanted
        }


def _refuse(answer: asyncio.Future[PolicySnapshot]) -> None:
    answer.set_exception(Unavailable())


def _retrieve_exception(answer: asyncio.Future[PolicySnapshot]) -> None:
    # A request that ended for another reason does not come back for its answer, and that is no accident.
    if not answer.cancelled():
        answer.exception()


def _answer(found: dict[uuid.UUID, PolicySnapshot] | ApiError, waiting: list[PendingRead]) -> None:
    for organization_id, answer in waiting:
        if answer.done():
            continue  # whose request has ended
        if isinstance(found, ApiError):
            answer.set_exception(type(found)())
        else:
            answer.set_result(found[organization_id])


def _sqlite_epochs(organization_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, int]:
    wanted = msgspec.json.encode([each.hex for each in organization_ids]).decode()
    found = connection.connection.execute(ON_SQLITE, [wanted]).fetchall()
    return {uuid.UUID(identifier): value for identifier, value in found}


class _PostgresEpochs:
    """Reads epochs over the thread's connection, for as long as it is the same."""

    def __init__(self) -> None:
        self._line: object = None

    def __call__(self, organization_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, int]:
        if self._line is not connection.connection:
            self._line = connection.connection
            self._pipeline = Pipeline(connection.connection, prepares=True)
        wanted = "{" + ",".join(each.hex for each in organization_ids) + "}"
        reply = self._pipeline.queue(ON_POSTGRESQL, wanted.encode())
        self._pipeline.deliver()
        return dict(_pairs(reply.value)) if reply.value else {}


_pairs = msgspec.json.Decoder(list[tuple[uuid.UUID, int]]).decode


publications = PublicationCache()
