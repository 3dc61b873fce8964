"""Judges of policies: what a judge is, and the one that this deployment has chosen."""

from __future__ import annotations

from policies.judges.base import Inconclusive, Judge
from policies.judges.registry import current_judge

__all__ = ["Inconclusive", "Judge", "current_judge"]
