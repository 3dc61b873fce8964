"""The start and the shutdown of a serving process: its sweeper, its memory, its queues."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from django.conf import settings

from billing.ledger.ledger import get_ledger
from billing.ledger.sweeper import Sweeper
from gateway_site.database.postgresql.deadlines import statement_limit
from gateway_site.server.memory_tuning import return_freed_memory, tune_garbage_collector
from gateway_site.server.stop_with_parent import stop_with_parent
from inference.activity.writer import writer
from inference.backends import registry
from inference.serving.lifecycle import request_task
from policies.enforcement import background_judging

logger = logging.getLogger(__name__)

LEDGER_SECONDS = 10.0
ACTIVITY_SECONDS = 5.0
POLICY_SECONDS = 5.0
STATEMENT_GRACE_SECONDS = 5.0


class Lifespan:
    """The ASGI lifespan protocol. The server has let requests finish by the time it says `shutdown`."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        stop_with_parent()
        # The server ends statements first; this is for one whose connection is dead.
        if settings.GATEWAY_STATEMENT_TIMEOUT_MS:
            statement_limit.seconds = settings.GATEWAY_STATEMENT_TIMEOUT_MS / 1000 + STATEMENT_GRACE_SECONDS
        sweeper = Sweeper()
        sweeper.start()
        tune_garbage_collector()
        return_freed_memory()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._shut_down(sweeper)
        await send({"type": "lifespan.shutdown.complete"})

    async def _shut_down(self, sweeper: Sweeper) -> None:
        await request_task.stop_all()
        await asyncio.to_thread(sweeper.stop)
        if left := await get_ledger().drain(LEDGER_SECONDS):
            logger.error("%d operations of the ledger are left for the sweeper", left)
        await asyncio.to_thread(writer.close, ACTIVITY_SECONDS)
        await background_judging.close_policies(POLICY_SECONDS)
        await registry.client.close()
