"""Where tests and their helpers are: a folder for each package, and no test module that others import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.harness.sources import ROOT, imported, modules

TESTS = ROOT / "tests"
# Folders that test no package: the whole product in service, its speed, and the tests' own tools.
SHARED_FOLDERS = {"benchmarks", "e2e", "harness"}
# Servers that stand in for backends, with folders of their own.
STAND_INS = {"inference/backends/upstreams"}
MODULES = sorted(modules("tests"))
FOLDERS = sorted({path.parent.relative_to(TESTS) for path in MODULES if path.parent != TESTS})
MIRRORS = [
    folder
    for folder in FOLDERS
    if folder.parts[0] not in SHARED_FOLDERS and not any(map(folder.is_relative_to, STAND_INS))
]


def test_no_test_module_or_conftest_is_a_library() -> None:
    """What tests share is in `factories`, `helpers` or a module that says what it holds."""
    libraries = []
    for path in MODULES:
        for name in imported(ast.parse(path.read_text())):
            parts = module_of(name) if name.startswith("tests.") else []
            # A folder may have the fixtures of another.
            is_fixtures = "conftest" in parts and path.name != "conftest.py"
            if is_fixtures or any(part.startswith("test_") for part in parts):
                libraries.append(f"{path.relative_to(ROOT)} imports {name}")

    assert libraries == []


def module_of(name: str) -> list[str]:
    """The parts of an imported name that are a module's, without what is taken from the module."""
    parts = name.split(".")
    while parts and not (ROOT / "/".join(parts)).is_dir() and not (ROOT / f"{'/'.join(parts)}.py").exists():
        parts.pop()
    return parts


@pytest.mark.parametrize("folder", MIRRORS, ids=str)
def test_a_folder_of_tests_has_the_name_of_what_it_tests(folder: Path) -> None:
    """A package, or a module whose tests take several files."""
    tested = ROOT / folder

    assert (tested / "__init__.py").exists() or tested.with_suffix(".py").exists()
