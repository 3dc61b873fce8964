"""Backends that an earlier version saved are still there, with their deployments, after the migrations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

BEFORE = [("inference", "0004_activity_server_failed")]
AFTER = [("inference", "0005_backend_kinds_from_table")]


def migrate(targets: list[tuple[str, str]]) -> Any:
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return executor.loader.project_state(targets).apps


@pytest.fixture
def earlier(transactional_db: None) -> Iterator[Any]:
    """The models as they were while the database enumerated kinds."""
    newest = [
        node for node in MigrationExecutor(connection).loader.graph.leaf_nodes() if node[0] == "inference"
    ]
    yield migrate(BEFORE)
    migrate(newest)


def test_rows_outlive_the_constraints_on_kinds(earlier: Any) -> None:
    backends = earlier.get_model("inference", "Backend").objects
    model = earlier.get_model("inference", "CatalogModel").objects.create(id="m")
    backends.create(name="s", kind="simulator")
    backends.create(name="c", kind="anthropic", base_url="https://e.com", options={"thinking": "adaptive"})
    vllm = backends.create(name="v", kind="openai", base_url="http://h/v1", credential_ciphertext=b"sealed")
    earlier.get_model("inference", "Deployment").objects.create(model=model, backend=vllm, upstream_id="x")
    columns = ("name", "kind", "base_url", "options", "is_enabled", "deployments__upstream_id")
    before = list(backends.order_by("name").values_list(*columns))

    now = migrate(AFTER)

    rows = now.get_model("inference", "Backend").objects
    assert list(rows.order_by("name").values_list(*columns)) == before
    assert bytes(rows.get(name="v").credential_ciphertext) == b"sealed"
    rows.create(name="t", kind="a-kind-of-tomorrow", base_url="")
    rows.filter(name="t").delete()
