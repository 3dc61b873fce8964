"""Layers, layout and size of the code: the rules that a machine can check."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command

from tests.harness.sources import PACKAGES, ROOT, imported, modules

# The packages that every app may build on; together they are the lowest layer.
FLOOR = (
    "gateway_site.api",
    "gateway_site.console.kit",
    "gateway_site.database",
    "gateway_site.http_client",
    "gateway_site.management.operator_command",
    "gateway_site.sealing",
)
MAY_IMPORT = {
    "floor": set(),
    "organization": {"floor"},
    "billing": {"floor", "organization"},
    "policies": {"floor", "organization"},
    "inference": {"floor", "organization", "billing", "policies"},
}
TOP_LEVEL = {
    "manage.py",
    "pyproject.toml",
    "gateway_site",
    "inference",
    "organization",
    "billing",
    "policies",
    "templates",
    "tests",
    "README.md",
    "Makefile",
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-local.txt",
    "Dockerfile",
    "compose.yaml",
}
UNTRACKED = {"data", "test-results"}
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_BROAD_HANDLERS = 400, 50, 2
MAX_FOLDER_MODULES, MAX_PREFIX_FAMILY = 15, 2


SOURCES = sorted(path for package in (*PACKAGES, "tests") for path in modules(package))


def layer_of(name: str) -> str | None:
    if any(name == package or name.startswith(f"{package}.") for package in FLOOR):
        return "floor"
    package = name.split(".")[0]
    return package if package in PACKAGES else None


def modules_of(layer: str) -> Iterator[Path]:
    if layer != "floor":
        yield from modules(layer)
        return
    for package in FLOOR:
        module = ROOT / f"{package.replace('.', '/')}.py"
        yield from [module] if module.exists() else modules(package)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_imports_point_one_way(layer: str) -> None:
    allowed = MAY_IMPORT[layer] | {layer, None}
    for path in modules_of(layer):
        for name in imported(ast.parse(path.read_text())):
            assert layer_of(name) in allowed, f"{path.relative_to(ROOT)} imports {name}"


FOLDERS = sorted({path.parent for path in SOURCES})


def names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def test_no_folder_has_more_modules_than_a_reader_can_survey() -> None:
    crowded = {str(folder.relative_to(ROOT)): len(names_in(folder)) for folder in FOLDERS}

    assert {name: count for name, count in crowded.items() if count > MAX_FOLDER_MODULES} == {}


def test_files_with_one_prefix_are_a_package() -> None:
    families = {}
    for folder in FOLDERS:
        if folder.name == "commands":  # a command's file name is what people type
            continue
        prefixes = Counter(name.removeprefix("test_").split("_")[0] for name in names_in(folder))
        if found := [prefix for prefix, members in prefixes.items() if members > MAX_PREFIX_FAMILY]:
            families[str(folder.relative_to(ROOT))] = found

    assert families == {}


# The theme, so that it can be exchanged. There is one HTTP client, our own: aiohttp is for tests.
@pytest.mark.parametrize(
    ("library", "importers"),
    [("unfold", {"gateway_site/console/kit/model_admin.py"}), ("aiohttp", set())],
)
def test_a_library_is_imported_in_one_module_or_none(library: str, importers: set[str]) -> None:
    assert importers == {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        if any(name.split(".")[0] == library for name in imported(ast.parse(path.read_text())))
    }


def lengths(path: Path) -> Iterator[tuple[str, int, int]]:
    """The file and each of its functions, with its lines and how many it may have."""
    name, text = str(path.relative_to(ROOT)), path.read_text()
    yield name, len(text.splitlines()), MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}: {node.name}", (node.end_lineno or 0) - node.lineno + 1, MAX_FUNCTION_LINES


def test_no_file_or_function_outgrows_a_reader() -> None:
    too_long = {name: count for path in SOURCES for name, count, most in lengths(path) if count > most}

    assert too_long == {}


def test_broad_handlers_stay_at_the_edges() -> None:
    broad = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in PACKAGES
        for path in modules(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]

    assert len(broad) <= MAX_BROAD_HANDLERS, broad


def test_nothing_lies_around_at_the_top() -> None:
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} - UNTRACKED

    assert found == TOP_LEVEL


def test_no_migration_is_missing(db: None) -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
