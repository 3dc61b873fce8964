"""The database backend as Django finds it: ENGINE is `gateway_site.database.postgresql`."""

from __future__ import annotations

import time
from typing import Any

from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from django.utils.asyncio import async_unsafe

from gateway_site.database.postgresql import deadlines
from gateway_site.database.postgresql.circuit_breaker import circuit_breaker_for
from gateway_site.database.postgresql.connection import DeadlineConnection


class DatabaseWrapper(base.DatabaseWrapper):
    """Gives out connections with deadlines, from the pool where there is one, and none that is known dead."""

    @property
    def pool(self) -> Any:
        options = self.settings_dict["OPTIONS"].get("pool")
        if options:
            options.setdefault("connection_class", DeadlineConnection)
        return super().pool

    @async_unsafe
    def get_new_connection(self, conn_params: dict[str, Any]) -> DeadlineConnection:
        self.isolation_level = IsolationLevel.READ_COMMITTED
        return self._from_pool(conn_params) if self.pool else DeadlineConnection.connect(**conn_params)

    def _from_pool(self, conn_params: dict[str, Any]) -> DeadlineConnection:
        until = time.monotonic() + self.pool.timeout
        if (deadline := deadlines.ends_at()) is not None:
            until = min(until, deadline)
        self.pool.open()
        while True:
            # Without this, everybody would wait for a pool that has nobody to connect to.
            circuit_breaker_for(conn_params).require_closed()
            connection: DeadlineConnection = self.pool.getconn(until - time.monotonic())
            if connection.is_fresh():
                return connection
            connection.pgconn.finish()
            self.pool.putconn(connection)
