"""Are the backends there? The answer is kept on their rows, where the catalog and the console read it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from asgiref.sync import async_to_sync
from django.utils import timezone

from inference.backends.model_list import ModelListFailed
from inference.backends.registry import BackendMisconfigured, backend_for
from inference.models import Backend

AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Finding:
    backend: Backend
    problem: str  # empty: it is ready


def probe(backends: Iterable[Backend] | None = None) -> list[Finding]:
    """Ask each (every enabled one, if none are named) and note what was found."""
    asked = list(Backend.objects.filter(is_enabled=True).order_by("name") if backends is None else backends)
    findings = async_to_sync(_ask_all)(asked)
    for finding in findings:
        changes = {"probed_at": timezone.now(), "probe_problem": finding.problem[:500]}
        Backend.objects.filter(pk=finding.backend.pk).update(**changes)
    return findings


async def _ask_all(backends: list[Backend]) -> list[Finding]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(backend: Backend) -> Finding:
        async with turn:
            return Finding(backend, await _problem_of(backend))

    return list(await asyncio.gather(*map(ask, backends)))


async def _problem_of(backend: Backend) -> str:
    try:
        await backend_for(backend).list_models()
    except (BackendMisconfigured, ModelListFailed) as problem:
        return str(problem)
    return ""
