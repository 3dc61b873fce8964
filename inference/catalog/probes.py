"""Health checks of backends. The result is kept on their rows, where the catalog and the console read it."""

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
class ProbeResult:
    """What a health check of one backend found."""

    backend: Backend
    problem: str  # empty: it is ready


def probe(backends: Iterable[Backend] | None = None) -> list[ProbeResult]:
    """Check each backend (every enabled one, if none are named) and store the result on its row."""
    probed = list(Backend.objects.filter(is_enabled=True).order_by("name") if backends is None else backends)
    results = async_to_sync(_probe_all)(probed)
    for result in results:
        changes = {"probed_at": timezone.now(), "probe_problem": result.problem[:500]}
        Backend.objects.filter(pk=result.backend.pk).update(**changes)
    return results


async def _probe_all(backends: list[Backend]) -> list[ProbeResult]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def probe_one(backend: Backend) -> ProbeResult:
        async with turn:
            return ProbeResult(backend, await _problem_of(backend))

    return list(await asyncio.gather(*map(probe_one, backends)))


async def _problem_of(backend: Backend) -> str:
    try:
        await backend_for(backend).list_models()
    except (BackendMisconfigured, ModelListFailed) as problem:
        return str(problem)
    return ""
