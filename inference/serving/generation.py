"""
An admitted request, from its hold to its settlement.

    admission.admit              model, options, size, hold
    policy_checks.with_policies  request policies, and a filter around the events for those of the answer
    Generation.events            the backend's events, from the first deployment that answers
    lifecycle.outcome            decides who pays, by who ended it and what was seen
    the ledger                   settles, however that ended: exactly once, and before the events end

JSON and SSE are written from the same events, and differ once: JSON is awaited for a client that left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from billing.ledger.ledger import get_ledger
from billing.ledger.operations import ReservationOutcome
from billing.models import ChargeBasis, EndedBy
from gateway_site.api.errors import BackendError, DeadlineExceeded, UnsupportedOption
from inference.activity.trace import RequestTrace
from inference.backends.usage import log_alert
from inference.catalog.served_models import Target
from inference.events import Event, Finish, Usage
from inference.serving.admission import Admission
from inference.serving.body_pool import SMALL, BodyWork
from inference.serving.lifecycle.outcome import ChargeRule, charge_rule
from inference.serving.load_balancing import fallback
from inference.serving.load_balancing.load_balancer import load_balancer
from inference.serving.usage_meter import UsageMeter

logger = logging.getLogger(__name__)


class Generation:
    """
    One admitted request as an asynchronous context: its exit has settled it.

    `events` may be read once; leaving that in any way has stopped the backend, and settled as well.
    """

    def __init__(self, admission: Admission, trace: RequestTrace, work: BodyWork = SMALL) -> None:
        self._admission = admission
        self._work = work
        self.trace = trace
        self._meter = UsageMeter(
            completions=admission.prompt.completions,
            images=admission.prompt.images,
            likely_prompt=admission.size.likely,
            most_prompt=admission.most_prompt,
            output_bound=admission.prompt.output_bound,
            count_tokens=admission.size.count_tokens,
            alert=log_alert(admission.targets[0].name),
        )
        # Whether a byte has left for a backend that has not reported since that it did nothing.
        self._may_owe = False
        self._is_dispatched = admission.is_dispatched
        self._is_charge_waived = False
        self._is_complete = False
        # Who or what ended it, once that is known.
        self._ended_by: EndedBy | None = None
        # The answer is awaited without anybody to read it.
        self.has_client_left = False
        self._last_target: Target | None = None
        # From the moment when the backend is done with.
        self.is_over = False
        # While the outcome is being written, which takes a bounded time: nothing is left to be stopped.
        self.is_settling = False

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if not self.is_over:  # nobody came to read the events
            await self._settle()

    async def events(self) -> AsyncGenerator[Event, None]:
        """
        The backend's events, and its usage as it was settled, last.

        They are those of the first target that has any; a fallback is asked only if nothing can be owed.
        All in one generator: each around another would cost every event as much as it costs to read it.
        """
        meter, trace = self._meter, self.trace
        try:
            for target in self._admission.targets:
                attempt = trace.begin_attempt(target.name)
                try:
                    async with aclosing(await self._call_backend(target)) as events:
                        async for event in events:
                            if type(event) is Usage:
                                meter.report(event)
                                continue
                            meter.count(event)
                            if trace.first_token is None:
                                trace.first_token = time.monotonic()
                            yield event
                            if meter.is_past_bound:
                                break
                    for finish in self._finish_cut_answer(target):
                        yield finish
                except (BackendError, UnsupportedOption) as error:
                    attempt.end(error.code)
                    self._fall_back_after(error, target)
                else:
                    attempt.end()
                    load_balancer.record_success(target)
                    self._is_complete = True
                    self.note_end(EndedBy.CLIENT if self.has_client_left else EndedBy.COMPLETE)
                    break
        finally:
            usage = await self._settle()
        yield usage

    async def heartbeat(self) -> None:
        """Renew the hold's lease, with what was seen so far."""
        if self.is_over:
            return
        usage = self._meter.usage() if self._meter.has_output else None
        seen = None if usage is None else self._meter.quantities(usage)
        if not await get_ledger().heartbeat(self._admission.hold, seen) and not self.is_over:
            logger.warning("request %s lost its hold while it was running", self._admission.hold.id)

    def waive_charge(self) -> None:
        """Charge nothing: what a backend did for a refused request is not its sender's to pay."""
        self._is_charge_waived = True
        self.note_end(EndedBy.POLICY)

    def note_end(self, ended_by: EndedBy) -> None:
        """Note who ends the request, before that takes effect; the first that was noted counts."""
        if self._ended_by is None:
            self._ended_by = ended_by

    def record_timeout(self) -> None:
        """The deadline passed: count a failure of the deployment that was asked last, if one was."""
        if self._last_target is not None:
            load_balancer.record_failure(self._last_target)

    @property
    def has_called_backend(self) -> bool:
        """Whether any backend was called, so that a deadline may be a backend's fault."""
        return self._last_target is not None

    @property
    def is_provably_free(self) -> bool:
        return not self._may_owe and not self._meter.has_output

    @property
    def outlives_client(self) -> bool:
        """
        Whether the answer is awaited if its client leaves now, so that it can be charged as reported.

        That is one in JSON which a backend is at work on, and of which nothing was seen. It ends as any other
        does, at the deadline at the latest.
        """
        if self.trace.is_stream or self.is_over:
            return False
        return self._may_owe and not self._meter.has_output

    # --- the backends --------------------------------------------------------------------------------

    async def _call_backend(self, target: Target) -> AsyncGenerator[Event, None]:
        # A call builds the body for the backend; nothing is sent before the first event is asked for.
        events = await self._work.run(
            target.backend.generate, self._admission.prompt, model=target.model, dispatch=self._dispatch
        )
        self._last_target = target
        return events

    async def _dispatch(self) -> None:
        if not self._is_dispatched:
            await get_ledger().mark_dispatched(self._admission.hold)
            self._is_dispatched = True
        self._may_owe = True

    def _finish_cut_answer(self, target: Target) -> list[Finish]:
        """The ends of an answer that was cut because it went on past its output bound; else none."""
        if not self._meter.is_past_bound:
            return []
        logger.warning(
            "request %s: backend %s went on past the output bound of model %s; its answer was cut",
            self._admission.hold.id,
            target.name,
            self.trace.model,
        )
        finishes = [Finish(index, "length") for index in self._meter.unfinished()]
        for finish in finishes:
            self._meter.count(finish)
        return finishes

    def _fall_back_after(self, error: BackendError | UnsupportedOption, target: Target) -> None:
        """Raise the error again, unless another target is there and may be asked."""
        if fallback.is_free(error) and not self._meter.has_output:
            self._may_owe = False
        if fallback.is_deployments_fault(error):
            load_balancer.record_failure(target)
        has_begun = self.trace.first_token is not None
        is_last = target is self._admission.targets[-1] or self.has_client_left
        if is_last or not fallback.may_fall_back(
            error, is_provably_free=self.is_provably_free, has_answer_begun=has_begun
        ):
            self.note_end(EndedBy.DEADLINE if isinstance(error, DeadlineExceeded) else EndedBy.BACKEND)
            raise error
        logger.info("%s: %s; asking another deployment", target.name, error.code)

    # --- the settlement ------------------------------------------------------------------------------

    async def _settle(self) -> Usage:
        self.is_over = self.is_settling = True
        # What nobody has ended, a bug of ours has.
        self.note_end(EndedBy.CRASH)
        # Were we cancelled here after all, the ledger would go on with what it was asked.
        began = time.monotonic()
        usage = self._meter.usage() or Usage(self._meter.prompt_estimate().prompt, 0)
        outcome = await self._settle_hold(usage)
        self.is_settling = False
        self.trace.record_step("settle", began)
        self.trace.settle(outcome, usage)
        if outcome.extended_nanousd or outcome.operator_loss_nanousd:
            logger.warning(
                "request %s of model %s cost more than was held: %d nano-USD more were charged, %d are lost",
                self._admission.hold.id,
                self.trace.model,
                outcome.extended_nanousd,
                outcome.operator_loss_nanousd,
            )
        return usage

    async def _settle_hold(self, usage: Usage) -> ReservationOutcome:
        ledger, hold, meter = get_ledger(), self._admission.hold, self._meter
        ended_by = self._ended_by or EndedBy.CRASH
        rule = charge_rule(
            ended_by,
            is_complete=self._is_complete,
            is_waived=self._is_charge_waived,
            is_provably_free=self.is_provably_free,
            has_output=meter.has_output,
        )
        match rule:
            case ChargeRule.NOTHING:
                return await ledger.release(hold, ended_by=ended_by)
            case ChargeRule.UNKNOWN:
                return await ledger.mark_unknown(hold, ended_by=ended_by)
            case ChargeRule.PROMPT:
                return await ledger.settle(hold, meter.prompt_estimate(), ChargeBasis.ESTIMATED, ended_by)
            case ChargeRule.USAGE:
                return await ledger.settle(hold, meter.quantities(usage), meter.basis, ended_by)
