"""The probes /healthz and /readyz, which need no key and tell nothing that a stranger may not know."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.cache import caches
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from gateway_site.api.errors import Unavailable
from gateway_site.api.rest_rate_limits.redis_cache import LimitCache, RedisUnavailable
from gateway_site.database.postgresql.deadlines import deadline

logger = logging.getLogger(__name__)

KEPT_SECONDS = 1.0
OK = "ok"


@dataclass(frozen=True, slots=True)
class Dependency:
    name: str
    condition: str  # "ok", or in a word or two what is wrong
    # Whether requests are refused while it is not ok.
    is_required: bool = True

    @property
    def is_ok(self) -> bool:
        return self.condition == OK


class HealthResponse(serializers.Serializer):
    status = serializers.ChoiceField(["ok"])


class ReadinessResponse(serializers.Serializer):
    status = serializers.ChoiceField(
        ["ok", "degraded"], help_text="`degraded`: something is wrong, and requests are served all the same."
    )
    dependencies = serializers.DictField(
        child=serializers.CharField(),
        help_text="Of each thing the gateway stands on: `ok`, or what is wrong.",
    )


class HealthView(GenericViewSet):
    authentication_classes = []
    permission_classes = [AllowAny]
    serializer_class = HealthResponse
    http_method_names = ["get", "head"]

    @extend_schema(
        tags=["Health"],
        operation_id="healthz",
        summary="The process is alive",
        responses={200: HealthResponse},
    )
    def alive(self, request: Any) -> Response:
        # Unspecified: unshown-endpoints.
        return Response({"status": "ok"})

    @extend_schema(
        tags=["Health"],
        operation_id="readyz",
        summary="The process can serve",
        responses={200: ReadinessResponse},
    )
    def ready(self, request: Any) -> Response:
        """Whether requests can be served, and how each dependency is, as of the last second."""
        found = readiness.current()
        if missing := [each for each in found if each.is_required and not each.is_ok]:
            conditions = ", ".join(f"{each.name} {each.condition}" for each in missing)
            raise Unavailable(f"Not ready: {conditions}.")
        status = "ok" if all(each.is_ok for each in found) else "degraded"
        return Response({"status": status, "dependencies": {each.name: each.condition for each in found}})


class Readiness:
    """
    The condition of every dependency, checked no longer than KEPT_SECONDS ago.

    One request at a time checks, the others wait for what it finds: many probes cost as much as one. Each of
    the checks has a clock of its own, so nobody waits for long.
    """

    def __init__(self) -> None:
        self._checking = threading.Lock()
        self._found: list[Dependency] = []
        self._found_at = float("-inf")

    def current(self) -> list[Dependency]:
        if self._is_fresh():
            return self._found
        with self._checking:
            if not self._is_fresh():
                found = list(dependencies())
                for each in found:
                    if not each.is_ok:
                        logger.warning("%s is %s", each.name, each.condition)
                self._found, self._found_at = found, time.monotonic()
            return self._found

    def forget(self) -> None:
        self._found_at = float("-inf")

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._found_at < KEPT_SECONDS


readiness = Readiness()


def dependencies() -> Iterator[Dependency]:
    """Check everything that the gateway depends on. Takes a few seconds at most."""
    try:
        with deadline(settings.GATEWAY_DATABASE_WAIT_SECONDS):
            missing = pending_migrations()
    except (DatabaseError, InterfaceError) as exc:
        logger.warning("the database did not answer: %s", exc)
        yield Dependency("database", "unreachable")
    else:
        yield Dependency("database", OK)
        yield Dependency("schema", "not migrated" if missing else OK)
    # PostgreSQL has a disk of its own, and an installation on it may have no directory here at all.
    is_database_here = connection.vendor == "sqlite"
    if is_database_here or data_directory().is_dir():
        yield Dependency("disk", disk_condition(data_directory()), is_required=is_database_here)
    if settings.REDIS_URL:
        # The process counts by itself meanwhile.
        yield Dependency("cache", cache_condition(), is_required=False)


def pending_migrations() -> list[str]:
    """Names of the migrations that the database has not seen."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [str(migration) for migration, _ in plan]


def data_directory() -> Path:
    """Where this machine's own data are written."""
    if connection.vendor == "sqlite":
        return Path(str(connection.settings_dict["NAME"])).parent
    return Path(settings.GATEWAY_DATA_DIR)


def disk_condition(directory: Path) -> str:
    """Whether something can be written into the directory, and as much as GATEWAY_MIN_FREE_BYTES."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return "missing"
    if found.f_flag & os.ST_RDONLY or not os.access(directory, os.W_OK):
        return "read-only"
    has_inodes = found.f_favail > 0 or found.f_files == 0  # some file systems do not count them
    has_bytes = found.f_bavail * found.f_frsize >= settings.GATEWAY_MIN_FREE_BYTES
    return OK if has_bytes and has_inodes else "full"


def cache_condition() -> str:
    """Whether the Redis that is configured answers."""
    cache = caches["default"]
    if not isinstance(cache, LimitCache) or cache.shared is None:
        return OK
    try:
        cache.shared.run(lambda redis: redis.has_key("probe"))
    except RedisUnavailable:
        return "unreachable"
    return OK
