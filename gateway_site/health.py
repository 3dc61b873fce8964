"""Probes. They stand outside /v1, need no key and tell nothing that a stranger may not know."""

from __future__ import annotations

import logging
from typing import Any

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from drf_spectacular.utils import extend_schema
from psycopg_pool import PoolTimeout
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from gateway_site.api.errors import Unavailable

logger = logging.getLogger(__name__)


class HealthResponse(serializers.Serializer):
    status = serializers.ChoiceField(["ok"])


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
        responses={200: HealthResponse},
    )
    def ready(self, request: Any) -> Response:
        try:
            missing = pending_migrations()
        except (DatabaseError, InterfaceError, PoolTimeout) as exc:
            logger.warning("not ready: the database did not answer", exc_info=exc)
            raise Unavailable("The database does not answer.") from None
        if missing:
            raise Unavailable("The database is not migrated.")
        return Response({"status": "ok"})


def pending_migrations() -> list[str]:
    """Names of the migrations that the database has not seen."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [str(migration) for migration, _ in plan]
