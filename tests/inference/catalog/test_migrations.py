"""Backends and models that an earlier version saved are still there after the migrations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.db.migrations.executor import MigrationExecutor

BEFORE = [("inference", "0004_activity_server_failed")]
AFTER = [("inference", "0005_backend_kinds_from_table")]
VOCABULARIES = [("inference", "0006_tokenizer_never_blank")]


def migrate(targets: list[tuple[str, str]]) -> Any:
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return executor.loader.project_state(targets).apps


@pytest.fixture
def earlier(transactional_db: None) -> Iterator[Any]:
    """The models as they were while the database enumerated kinds."""
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
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


def test_models_without_a_vocabulary_get_that_of_their_family(earlier: Any) -> None:
    models = earlier.get_model("inference", "CatalogModel").objects
    backend = earlier.get_model("inference", "Backend").objects.create(name="s", kind="simulator")
    deployments = earlier.get_model("inference", "Deployment").objects
    for model_id in ("acme/fast", "gpt-4", "whatever"):
        deployments.create(
            model=models.create(id=model_id),
            backend=backend,
            upstream_id="llama3.1:8b" if model_id == "acme/fast" else model_id,
        )
    models.create(id="undeployed/gpt-oss-20b")
    models.create(id="named/gpt-4", tokenizer="phi4")

    rows = migrate(VOCABULARIES).get_model("inference", "CatalogModel").objects

    assert {row.pk: (row.tokenizer, row.is_tokenizer_exact) for row in rows.all()} == {
        "acme/fast": ("llama3", True),
        "gpt-4": ("cl100k_base", True),
        "whatever": ("o200k_base", False),
        "undeployed/gpt-oss-20b": ("o200k_harmony", True),
        "named/gpt-4": ("phi4", True),
    }
    with pytest.raises(IntegrityError):
        rows.create(id="blank", tokenizer="")
