"""
An admitted request, from its hold to its settlement.

    admission.admit    model, options, size, hold
    policing.judged    request policies, and a guard around the events for those of the answer
    Generation.events  the backend's events, from the first deployment that answers
    settle             however that ended: exactly once, and before the events end

JSON and SSE are written from the same events, and differ nowhere else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from billing.ledger.ledger import get_ledger
from billing.ledger.operations import Outcome
from gateway_site.api.errors import ApiError, BackendError, ProviderRejected, UnsupportedOption
from gateway_site.http_client.failures import OptionNotImplemented
from inference.activity.trace import Attempt, Trace
from inference.backends.usage import log_alert
from inference.catalog.served_models import Target
from inference.events import Event, Finish, Usage
from inference.serving import load_balancing
from inference.serving.admission import Admission
from inference.serving.body_pool import SMALL, BodyWork
from inference.serving.usage_meter import Meter

logger = logging.getLogger(__name__)

# What the client's own request brought about: no other deployment would do better.
CLIENTS_OWN = (ProviderRejected, OptionNotImplemented, UnsupportedOption)


class Generation:
    """
    One request, as a context: leaving it has settled.

    `events` may be read once; leaving that in any way has stopped the backend, and settled as well.
    """

    def __init__(self, admission: Admission, trace: Trace, work: BodyWork = SMALL) -> None:
        self._admission = admission
        self._work = work
        self._trace = trace
        self._meter = Meter(
            completions=admission.prompt.completions,
            images=admission.prompt.images,
            likely_prompt=admission.size.likely,
            output_bound=admission.prompt.output_bound,
            count=admission.count,
            alert=log_alert(admission.targets[0].name),
        )
        # Whether a byte has left for a backend that has not said since that it did nothing.
        self._may_owe = False
        self._is_dispatched = admission.is_dispatched
        self._is_forgiven = False
        # The one that was asked last.
        self._asked: Target | None = None
        # From the moment when the backend is done with.
        self.is_over = False
        # While the outcome is being written, which takes a bounded time: nothing is left to be stopped.
        self.is_settling = False

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if not self.is_over:  # nobody came to read the events
            await self._end(is_complete=False)

    async def events(self) -> AsyncGenerator[Event, None]:
        """
        What the backend says, and its usage as it was settled, last.

        The events are those of the first target that has any; another is asked only if nothing can be owed.
        All in one generator: each around another would cost every event as much as it costs to read it.
        """
        meter, trace = self._meter, self._trace
        is_complete = False
        try:
            for target in self._admission.targets:
                attempt = self._begin(target)
                try:
                    async with aclosing(await self._said_by(target)) as events:
                        async for event in events:
                            if type(event) is Usage:
                                meter.report(event)
                                continue
                            meter.note(event)
                            if trace.first_token is None:
                                trace.first_token = time.monotonic()
                            yield event
                            if meter.is_past_bound:
                                break
                    for finish in self._ends_of_cut(target):
                        yield finish
                except (BackendError, UnsupportedOption) as error:
                    attempt.end(error.code)
                    self._go_on_after(error, target)
                else:
                    attempt.end()
                    load_balancing.note_success(target)
                    is_complete = True
                    break
        finally:
            await self._end(is_complete)
        usage = meter.usage()
        if usage is not None:
            yield usage

    async def beat(self) -> None:
        """Renew the hold's lease, with what was seen so far."""
        if self.is_over:
            return
        seen = self._meter.quantities() if self._meter.has_output else None
        if not await get_ledger().heartbeat(self._admission.hold, seen) and not self.is_over:
            logger.warning("request %s lost its hold while it was running", self._admission.hold.id)

    def note_judged(self, began: float) -> None:
        """The request was judged, from then to now; perhaps while a backend worked."""
        self._trace.note_step("judge", began)

    def forgive(self) -> None:
        """The request was refused by a policy: what a backend did meanwhile is not its sender's to pay."""
        self._is_forgiven = True

    def note_silence(self) -> None:
        """The deadline came: whoever was asked last did not answer in time."""
        if self._asked is not None:
            load_balancing.note_failure(self._asked)

    @property
    def has_asked(self) -> bool:
        """Whether any backend was asked, so that a deadline may be a backend's fault."""
        return self._asked is not None

    @property
    def is_provably_free(self) -> bool:
        return not self._may_owe and not self._meter.has_output

    # --- the backends --------------------------------------------------------------------------------

    def _begin(self, target: Target) -> Attempt:
        return self._trace.begin_attempt(target.name)

    async def _said_by(self, target: Target) -> AsyncGenerator[Event, None]:
        # A call builds the body for the backend; nothing is sent before the first event is asked for.
        events = await self._work.run(
            target.backend.generate, self._admission.prompt, model=target.model, dispatch=self._dispatch
        )
        self._asked = target
        return events

    def _ends_of_cut(self, target: Target) -> list[Finish]:
        """What ends an answer that went on past its output bound, and was left; nothing for any other."""
        if not self._meter.is_past_bound:
            return []
        logger.warning("backend %s went on past the output bound; its answer was cut", target.name)
        finishes = [Finish(index, "length") for index in self._meter.unfinished()]
        for finish in finishes:
            self._meter.note(finish)
        return finishes

    def _go_on_after(self, error: BackendError | UnsupportedOption, target: Target) -> None:
        """Raise the error again, unless another target may be asked."""
        is_free = isinstance(error, UnsupportedOption) or error.is_free
        if is_free and not self._meter.has_output:
            self._may_owe = False
        if not isinstance(error, CLIENTS_OWN):
            load_balancing.note_failure(target)
        if target is self._admission.targets[-1] or not self._may_try_another(error):
            raise error
        logger.info("%s: %s; asking another deployment", target.name, error.code)

    async def _dispatch(self) -> None:
        if not self._is_dispatched:
            await get_ledger().mark_dispatched(self._admission.hold)
            self._is_dispatched = True
        self._may_owe = True

    def _may_try_another(self, error: ApiError) -> bool:
        has_begun = self._trace.first_token is not None
        return self.is_provably_free and not has_begun and not isinstance(error, ProviderRejected)

    # --- the end -------------------------------------------------------------------------------------

    async def _end(self, is_complete: bool) -> None:
        self.is_over = self.is_settling = True
        # Were we cancelled here after all, the ledger would go on with what it was asked.
        began = time.monotonic()
        outcome = await self._resolution(is_complete)
        self.is_settling = False
        self._trace.note_step("settle", began)
        self._trace.settle(outcome, self._meter.usage())
        if outcome.operator_loss_nanousd:
            logger.warning(
                "request %s cost %d nano-USD more than was held for it",
                self._admission.hold.id,
                outcome.operator_loss_nanousd,
            )

    async def _resolution(self, is_complete: bool) -> Outcome:
        ledger, hold = get_ledger(), self._admission.hold
        if self._is_forgiven:
            return await ledger.release(hold)
        if is_complete or self._meter.has_output:
            used = self._meter.quantities()
            if used is not None:
                return await ledger.settle(hold, used, self._meter.basis)
        elif self.is_provably_free:
            return await ledger.release(hold)
        return await ledger.mark_unknown(hold)
