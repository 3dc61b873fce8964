"""The project's own source files, for tests that hold them to its rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The packages of the product.
PACKAGES = ("gateway_site", "organization", "billing", "policies", "inference")


def modules(package: str) -> Iterator[Path]:
    """Every module below a package but its migrations, which Django writes."""
    for path in (ROOT / package.replace(".", "/")).rglob("*.py"):
        if "migrations" not in path.parts:
            yield path


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of what a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
