"""
The policies of one request, from its start to its end.

It knows no dialect and no backend: it is given texts, and events together with a function that says what
text an event carries. The versions are those in force when the request began; what is published or paused
meanwhile is for the next one.

    snapshot = look(key.project)              # asks the database while the body is read and parsed
    gate = await Gate.open(
        project=key.project, request_id=trace.id, policy_ids=call.policy_ids, snapshot=snapshot    # 404 503
    )
    ...                                       # hold with is_dispatched=not gate.blocks_request
    check = partial(gate.check_request, texts_of(prompt), is_readable=not prompt.images)           # 403 503
    events = generation.events()
    await check()                             # nothing is sent before the verdict, or, where a deployment
                                              # chose so: events = released_after(check, events)
    events = guarded(events, gate=gate, describe=text_of_event, is_streamed=call.stream)           # 403 503
    async with aclosing(events):
        async for event in events:
            ...                               # as without policies; an ApiError ends it like any other


    def text_of_event(event: Event) -> tuple[Hashable, str] | None:
        # The first part tells apart what must not be read as one text: another choice, another tool call.
        match event:
            case TextDelta(index, text):
                return (index, "text"), text
            case ToolCallArguments(index, call, text):
                return (index, "call", call), text
            ...

`guarded` and `released_after` are in `guard`. At the end of the process, `await background.leave(seconds)`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterable, Sequence
from functools import cached_property

from gateway_site.api.errors import JudgeUnavailable, PolicyViolation
from organization.models import Project
from policies.enforcement.attachment import AttachedVersion, Snapshot, versions_for_request
from policies.enforcement.background_judging import background
from policies.enforcement.judging import Finding, Panel
from policies.enforcement.publication_cache import reader
from policies.judges import Judge
from policies.models import Direction
from policies.verdicts.records import Record


def look(project: Project) -> Awaitable[Snapshot]:
    """Ask what is in force, without waiting for it. Only for `Gate.open`, by the request that asked."""
    return reader.ask(project.organization_id)


class Gate:
    def __init__(
        self,
        versions: Sequence[AttachedVersion],
        *,
        organization_id: uuid.UUID,
        project_id: uuid.UUID,
        request_id: uuid.UUID,
        judge: Judge | None = None,
    ) -> None:
        self.versions = tuple(versions)
        self._project_id = project_id
        self._request_id = request_id
        self._organization_id = organization_id
        self._judge = judge
        self._request = _Side(self.versions, Direction.REQUEST)
        self._response = _Side(self.versions, Direction.RESPONSE)

    @classmethod
    async def open(
        cls,
        *,
        project: Project,
        request_id: uuid.UUID,
        policy_ids: Sequence[str] = (),
        snapshot: Awaitable[Snapshot] | None = None,
        judge: Judge | None = None,
    ) -> Gate:
        """
        The policies of the project and those that the request names; PolicyNotFound for any other id.

        `snapshot` is what `look` gave at the start of the request, where the database was asked meanwhile.
        """
        known = await (look(project) if snapshot is None else snapshot)
        return cls(
            versions_for_request(known, project.pk, policy_ids),
            organization_id=project.organization_id,
            project_id=project.pk,
            request_id=request_id,
            judge=judge,
        )

    @cached_property
    def _panel(self) -> Panel:
        return Panel(self._organization_id, self._judge)

    @property
    def blocks_request(self) -> bool:
        """Whether `check_request` waits for a judge and may refuse."""
        return bool(self._request.enforcing)

    @property
    def has_request_policies(self) -> bool:
        return bool(self._request.enforcing or self._request.monitoring)

    @property
    def has_response_policies(self) -> bool:
        return bool(self._response.enforcing or self._response.monitoring)

    @property
    def blocks_response(self) -> bool:
        """Whether the answer is held back until it was judged."""
        return bool(self._response.enforcing)

    async def check_request(self, texts: Iterable[str], *, is_readable: bool = True) -> None:
        """
        Refuse if an enforcing policy matches (PolicyViolation) or could not be judged (JudgeUnavailable).

        `is_readable` is False where the request also has what no judge here can read, such as an image: an
        enforcing policy cannot know then. Monitoring policies are judged later and refuse nothing.
        """
        if not self.has_request_policies:
            return
        text = "\n".join(texts)
        record = self._record(Direction.REQUEST)
        background.judge(self._panel, record, self._request.monitoring, text)
        if not self._request.enforcing:
            return
        findings = await self._panel.ask_all(self._request.enforcing, text)
        if not is_readable:
            findings = [
                each if each.is_match else Finding(each.version, None, 0, "unreadable") for each in findings
            ]
        record.note(findings)
        _decide(findings, Direction.REQUEST)

    async def check_answer(self, text: str) -> None:
        """Refuse as `check_request` does, for the whole answer so far. `guard` calls this for each window."""
        findings = await self._panel.ask_all(self._response.enforcing, text)
        self._response.remember(findings)
        _decide(findings, Direction.RESPONSE)

    def end_answer(self, text: str) -> None:
        """Record what was found, and have monitoring policies judge the answer as far as it came."""
        record = self._record(Direction.RESPONSE)
        record.note(self._response.findings, self._response.judgements)
        if text:
            background.judge(self._panel, record, self._response.monitoring, text)

    def _record(self, direction: Direction) -> Record:
        return Record(self._project_id, self._request_id, self._panel.judge_name, direction)


class _Side:
    """The policies that read one direction, and what is known of them so far."""

    def __init__(self, versions: Iterable[AttachedVersion], direction: Direction) -> None:
        reading = [version for version in versions if version.reads(direction)]
        self.enforcing = [version for version in reading if version.is_enforcing]
        self.monitoring = [version for version in reading if not version.is_enforcing]
        self.judgements = 0
        self._findings: dict[uuid.UUID, Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        return list(self._findings.values())

    def remember(self, findings: Iterable[Finding]) -> None:
        """Of all windows, the one that came nearest to a match."""
        self.judgements += 1
        for finding in findings:
            best = self._findings.get(finding.version.version_id)
            if best is None or best.score is None or finding.score is None or finding.score >= best.score:
                self._findings[finding.version.version_id] = finding


def _decide(findings: Iterable[Finding], direction: Direction) -> None:
    """A match is certain, so it is told before what is not known."""
    unknown = None
    for finding in findings:
        version = finding.version
        if finding.is_match:
            raise PolicyViolation(policy_id=str(version.policy_id), name=version.name, direction=direction)
        if finding.score is None and unknown is None:
            unknown = version
    if unknown is not None:
        raise JudgeUnavailable(policy_id=str(unknown.policy_id), name=unknown.name, direction=direction)
