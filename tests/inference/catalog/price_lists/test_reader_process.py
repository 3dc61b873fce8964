"""The library with the price list stays out of the processes that serve requests."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway_site.api.errors import Conflict
from inference.catalog.price_lists import reader_process
from inference.catalog.price_lists.entries import Match, PriceQuestion
from tests.harness.sources import PACKAGES, ROOT, imported, modules

LIBRARIES = ("genai_prices", "pydantic", "httpx2")
QUESTION = PriceQuestion("anthropic/claude-sonnet-4-5")
# All that a server loads, the console's page among it, and then what the page does.
SERVER = f"""
import sys
import gateway_site.asgi, gateway_site.urls, gateway_site.celery_app
from inference.catalog.price_lists import reader_process
from inference.catalog.price_lists.entries import PriceQuestion
print(reader_process.answer([PriceQuestion({QUESTION.model!r})]).answers[0].match.value)
print([name for name in {LIBRARIES!r} if name in sys.modules])
"""


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    reader_process.forget()


@pytest.mark.slow
def test_a_server_that_compares_prices_has_not_loaded_the_list(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
        "DATABASE_URL": "",
        "GATEWAY_DATA_DIR": str(tmp_path),
    }

    done = subprocess.run(
        [sys.executable, "-c", SERVER], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert done.stdout.split("\n")[:2] == ["found", "[]"], done.stderr


def test_one_module_imports_the_library_and_no_server_imports_that_one() -> None:
    reader = "inference.catalog.price_lists.genai_list"
    importers: dict[str, set[str]] = {"library": set(), "reader": set()}
    for path in (path for package in PACKAGES for path in modules(package)):
        if "genai_" not in (text := path.read_text()):
            continue
        names = set(imported(ast.parse(text)))
        if any(name.split(".")[0] == "genai_prices" for name in names):
            importers["library"].add(str(path.relative_to(ROOT)))
        if any(name == reader or name.startswith(f"{reader}.") for name in names):
            importers["reader"].add(str(path.relative_to(ROOT)))

    assert importers == {
        "library": {"inference/catalog/price_lists/genai_list.py"},
        "reader": {
            "inference/catalog/price_lists/__main__.py",
            "inference/management/commands/sync_prices.py",
        },
    }


@pytest.mark.slow
def test_what_was_answered_is_kept_for_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    first = reader_process.answer([QUESTION])
    monkeypatch.setattr(reader_process.subprocess, "run", None)

    assert reader_process.answer([QUESTION]) is first
    assert first.answers[0].match is Match.FOUND
    assert first.answers[0].cards[0].card.rates["cache_write"].picousd == 3_750_000


@pytest.mark.parametrize(
    ("command", "seconds", "message"),
    [
        ("import time; time.sleep(60)", 0.2, "did not answer within"),
        ("raise SystemExit('broken')", 30, "could not be read: broken"),
    ],
)
def test_a_reader_that_fails_or_hangs_is_a_clear_refusal(
    monkeypatch: pytest.MonkeyPatch, command: str, seconds: float, message: str
) -> None:
    def run_another(words: list[str], **options: Any) -> Any:
        return run([words[0], "-c", command], **options)

    run = subprocess.run
    monkeypatch.setattr(reader_process, "TIMEOUT_SECONDS", seconds)
    monkeypatch.setattr(reader_process.subprocess, "run", run_another)

    with pytest.raises(Conflict, match=message):
        reader_process.answer([QUESTION])
