"""The register of open questions, its document and the code agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway_site.api.openapi.open_questions import QUESTIONS, OpenQuestion, markdown

ROOT = Path(__file__).resolve().parents[3]
APPS = ["gateway_site", "organization", "billing", "policies", "inference"]
MARK = re.compile(r"# Unspecified: ([a-z-]+)")
IDS = [question.id for question in QUESTIONS]


def marked_files() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            for identifier in MARK.findall(path.read_text()):
                found.setdefault(identifier, set()).add(str(path.relative_to(ROOT)))
    return found


def test_every_place_that_is_not_shown_has_a_row() -> None:
    assert len(QUESTIONS) == len(set(IDS)) == 23


@pytest.mark.parametrize("question", QUESTIONS, ids=IDS)
def test_a_choice_is_marked_where_the_register_says(question: OpenQuestion) -> None:
    places = marked_files().get(question.id, set())

    if question.where is None:
        assert not places
    else:
        assert question.where in places


def test_no_mark_is_without_a_row() -> None:
    assert set(marked_files()) <= set(IDS)
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            if path.name != "open_questions.py":
                text = path.read_text()
                assert text.count("Unspecified:") == len(MARK.findall(text)), path


def test_the_document_is_the_register() -> None:
    assert (ROOT / "gateway_site" / "api" / "OPEN_QUESTIONS.md").read_text() == markdown()
