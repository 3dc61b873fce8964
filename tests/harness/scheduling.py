"""
Which tests go to one worker together: those that share what takes seconds to make.

pytest-xdist's own way to say so, the mark `xdist_group`, is silently without effect with a pytest that
keeps the ids of tests where xdist does not write them.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    "tests/e2e/console/",
    "tests/billing/ledger/test_parallel_admission.py",
    "tests/gateway_site/quickstart/test_local_model.py",
    "tests/harness/test_services.py",
)


class Together(LoadScopeScheduling):
    """Groups first, the largest before all, so that none is left to one worker at the end."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for group in TOGETHER if nodeid.startswith(group)), nodeid)
