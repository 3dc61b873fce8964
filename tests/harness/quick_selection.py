"""
What `--quick` selects: every test function once, but for those that need another process.

A parametrized test runs with its first parameters; the rules of the house, in the folder above, run with all
of theirs. Left out are tests of the product in service, tests that start a server or another process, and
tests with the mark `slow`, which take more than a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.harness.sources import ROOT

RULES = ROOT / "tests"
# Tests here start servers, browsers or benchmarks.
WITH_PROCESSES = ("tests/e2e/", "tests/benchmarks/", "tests/harness/", "tests/gateway_site/quickstart/")
# Fixtures for work in another process.
OF_PROCESSES = {"process_environment", "valkey_url"}


def quick(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    functions: set[str] = set()
    for item in items:
        # tests/test_architecture.py and the like look at one source file each.
        is_rule = item.path.parent == RULES
        function = item.nodeid if is_rule else item.nodeid.split("[")[0]
        if function not in functions and not _needs_more(item):
            functions.add(function)
            yield item


def _needs_more(item: pytest.Item) -> bool:
    return (
        item.nodeid.startswith(WITH_PROCESSES)
        or item.get_closest_marker("slow") is not None
        or bool(OF_PROCESSES & set(getattr(item, "fixturenames", ())))
    )
