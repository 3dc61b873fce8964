"""The documents name files, modules and commands that exist, and leave none of the commands out."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (".github", "gateway_site", "organization", "billing", "policies", "inference", "tests")
DOCUMENTS = [
    ROOT / "README.md",
    *sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")),
]
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"\w[\w.-]*(/[\w.-]+)*\.(py|md|yaml|txt|toml)|\w[\w.-]*(/[\w.-]+)+/?")
MODULE = re.compile(r"python -m ((?:tests|gateway_site)[\w.]*)")
COMMAND = re.compile(r"`([a-z_]+)[ `]")
MAX_README_LINES = 150

pytestmark = pytest.mark.one_database


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def is_file_of(document: Path, name: str) -> bool:
    """Whether a name is that of a file: from the top, from the document's folder, or below that folder."""
    return any((ROOT / folder / name).exists() for folder in ("", document.parent, "gateway_site"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_a_document_links_to_what_exists(document: Path) -> None:
    missing = [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()]

    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_a_document_names_files_that_exist(document: Path) -> None:
    named = [code for code in CODE.findall(document.read_text()) if FILE.fullmatch(code)]

    assert [name for name in named if not is_file_of(document, name)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_a_document_runs_modules_that_exist(document: Path) -> None:
    named = MODULE.findall(document.read_text())

    assert [name for name in named if importlib.util.find_spec(name) is None] == []


def test_a_newcomer_reads_readme_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def test_operations_lists_every_command_and_no_other() -> None:
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "gateway_site/OPERATIONS.md").read_text(), re.MULTILINE)
    commands = {
        name
        for name, app in get_commands().items()
        if app in settings.INSTALLED_APPS and (ROOT / app).is_dir()
    }
    listed = {name for row in rows for name in COMMAND.findall(row)}

    assert commands - listed == {"serve", "runserver"} & commands
    assert {name for name in listed if "_" in name} <= commands


def test_what_is_to_be_touched_exists_and_a_test_shows_it() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| (an? .+?) \| (.+?) \| `(tests/.+?)` \|$", readme, re.MULTILINE)

    assert {"a backend kind", "a judge", "a price part"} < {added for added, _, _ in rows}
    for added, touched, test in rows:
        assert CODE.findall(touched), added
        assert (ROOT / test).is_file(), f"{added}: {test}"


def test_a_commit_is_checked_as_lint_checks() -> None:
    lint = re.search(r"^lint: \.venv.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert lint
    in_makefile = [line.strip().replace("$(BIN)", ".venv/bin") for line in lint[1].splitlines()]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]

    environment = "env GATEWAY_DATA_DIR=.venv/lint DATABASE_URL= "
    assert [hook["entry"].removeprefix(environment) for hook in hooks] == in_makefile


def test_the_forge_runs_the_two_commands_of_readme() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yaml").read_text())["jobs"]
    ran = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]

    assert "make test" in ran
    assert any(script.startswith("make run ") for script in ran)
