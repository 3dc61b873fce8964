"""One word, one meaning: what names and docstrings of the product are held to."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.harness.sources import PACKAGES, ROOT, modules

PRODUCT = sorted(path for room in PACKAGES for path in modules(room))
MIN_SUMMARY_WORDS = 5
# A summary that begins so leans on the line above it, or on the memory of whoever wrote it.
LEANING = re.compile(r"(Of|The same|Their|By|They|It|Also|Else)\b")
# Words that stood for many things each. What they mean now has a name of its own.
BANNED_NAMES = {
    "place", "places", "told", "said", "look", "beside", "hasten", "youngest_allowed", "is_keeper", "rest",
    "happening", "able", "asked",
}  # fmt: skip
DOTTED = re.compile(r"`((?:\w+\.)+\w+)(?:\(\))?`")
# As Django writes a permission: no module has it.
PERMISSION = re.compile(r"\w+\.(view|add|change|delete)_\w+")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in PRODUCT:
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def names_given(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that a module gives to something, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def test_a_type_name_is_the_name_of_one_type() -> None:
    homes = defaultdict(set)
    for path, tree in trees():
        if "/management/commands/" in path:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name != "Meta":
                homes[node.name].add(path)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
                is_type_variable = isinstance(node.value, ast.Call) and "TypeVar" in ast.unparse(node.value)
                if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", target.id) and not is_type_variable:
                    homes[target.id].add(path)

    assert {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1} == {}


def test_a_name_says_what_it_is() -> None:
    found = [
        f"{path}:{line} {name}"
        for path, tree in trees()
        for name, line in names_given(tree)
        if name.lstrip("_") in BANNED_NAMES
    ]

    assert found == []


def test_a_docstring_stands_alone() -> None:
    found = []
    for path, tree in trees():
        for node, text in docstrings(tree):
            summary = text.splitlines()[0]
            if len(summary.split()) < MIN_SUMMARY_WORDS or LEANING.match(summary):
                found.append(f"{path}:{getattr(node, 'lineno', 1)} {summary}")

    assert found == []


def test_what_a_docstring_names_can_be_imported() -> None:
    """`billing.ledger.ledger.Ledger` in backquotes is a promise that it is there."""
    missing = []
    for path, tree in trees():
        for _, text in docstrings(tree):
            for name in DOTTED.findall(text):
                meant = meanings_of(name)
                if meant and not any(map(is_importable, meant)):
                    missing.append(f"{path}: `{name}`")

    assert missing == []


def meanings_of(name: str) -> list[str]:
    """The full names that a dotted name may stand for: itself, or one in a module with its first word."""
    first = name.split(".")[0]
    if first in PACKAGES:
        return [] if PERMISSION.fullmatch(name) else [name]
    return [".".join([*path.relative_to(ROOT).parent.parts, name]) for path in PRODUCT if path.stem == first]


def is_importable(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False
