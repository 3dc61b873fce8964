"""The ledger thread's own database connection, and what its errors mean."""

from __future__ import annotations

import contextlib
import enum
import sqlite3

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from billing.ledger.batch import Store, store_over

# Shorter than elsewhere: many requests stand behind one batch.
LOCK_TIMEOUT_MS = 500
STATEMENT_TIMEOUT_MS = 5_000
SQLITE_BUSY_SECONDS = 2
# As operators see it in pg_stat_activity.
APPLICATION_NAME = "gateway ledger"


class DatabaseProblem(enum.Enum):
    """What is wrong with the database when a batch fails, and what to do about it."""

    LOCKED = "another session holds an organization's row: leave that organization alone for a while"
    COLLIDED = "another transaction was in the way: try again"
    LOST = "the database is not there: connect again"
    POISONED = "something in the batch is wrong: find out which operation"


def database_problem_of(error: Exception) -> DatabaseProblem:
    """What an error that a batch failed with means for it."""
    match error:
        case psycopg.errors.LockNotAvailable():
            return DatabaseProblem.LOCKED
        case psycopg.errors.DeadlockDetected() | psycopg.errors.SerializationFailure():
            return DatabaseProblem.COLLIDED
        case sqlite3.OperationalError() if "locked" in str(error) or "busy" in str(error):
            return DatabaseProblem.COLLIDED
        case psycopg.OperationalError() | psycopg.InterfaceError() | sqlite3.OperationalError():
            return DatabaseProblem.LOST
        case OperationalError() | InterfaceError():
            return DatabaseProblem.LOST
        case _:
            return DatabaseProblem.POISONED


class LedgerConnection:
    """The connection of one thread: opened when it is first needed, and again after it broke."""

    def __init__(self, alias: str = DEFAULT_DB_ALIAS) -> None:
        self._alias = alias
        self._connection: BaseDatabaseWrapper | None = None
        self._store: Store | None = None

    def store(self) -> Store:
        if self._store is None:
            self._connection = self._new_connection()
            self._store = store_over(self._connection, is_own=True)
        return self._store

    def close(self) -> None:
        connection, self._connection, self._store = self._connection, None, None
        if connection is not None:
            # It may be closed because it is broken.
            with contextlib.suppress(OperationalError, InterfaceError):
                connection.close()

    def _new_connection(self) -> BaseDatabaseWrapper:
        connection = connections[self._alias].copy()
        options = connection.settings_dict["OPTIONS"]
        if connection.vendor == "sqlite":
            options["timeout"] = SQLITE_BUSY_SECONDS
            return connection
        # A pool would give the connection to someone else between two batches, and would be slow to
        # notice that the database is back.
        options.pop("pool", None)
        options["application_name"] = APPLICATION_NAME
        options["options"] = " ".join(
            [
                options.get("options", ""),
                f"-c lock_timeout={LOCK_TIMEOUT_MS}",
                f"-c statement_timeout={STATEMENT_TIMEOUT_MS}",
                # Every statement of the ledger finds rows by their keys. A plan is made once, perhaps while
                # a table was still small enough to read it all, and kept; so that plan is ruled out.
                "-c plan_cache_mode=force_generic_plan",
                "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off",
            ]
        )
        return connection
