"""
The policies of one request, from its start to its end.

No dialect and no backend is known here: texts are given to `RequestPolicies.check_request` before anything is
sent to a backend, and the answer's text to `check_answer`, which `answer_filter` does window by window. The
versions are those in force when the request began; what is published or paused meanwhile is for the next one.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterable, Sequence
from functools import cached_property

from gateway_site.api.errors import JudgeUnavailable, PolicyViolation
from organization.models import Project
from policies.enforcement.attachment import AttachedVersion, PolicySnapshot, versions_for_request
from policies.enforcement.background_judging import background
from policies.enforcement.judging import PolicyFinding, PolicyJudging
from policies.enforcement.publication_cache import publications
from policies.judges import Judge
from policies.models import Direction
from policies.verdicts.records import VerdictRecorder


def start_snapshot_read(project: Project) -> Awaitable[PolicySnapshot]:
    """Start to read what is in force, for `RequestPolicies.attach` of the request that calls this."""
    return publications.read(project.organization_id)


class RequestPolicies:
    """The versions of policies that apply to one request, and their enforcement on its request and answer."""

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
    async def attach(
        cls,
        *,
        project: Project,
        request_id: uuid.UUID,
        policy_ids: Sequence[str] = (),
        snapshot: Awaitable[PolicySnapshot] | None = None,
        judge: Judge | None = None,
    ) -> RequestPolicies:
        """
        The policies of the project and those that the request names; PolicyNotFound for any other id.

        `snapshot` is what `start_snapshot_read` gave at the start of the request, where there was one.
        """
        in_force = await (start_snapshot_read(project) if snapshot is None else snapshot)
        return cls(
            versions_for_request(in_force, project.pk, policy_ids),
            organization_id=project.organization_id,
            project_id=project.pk,
            request_id=request_id,
            judge=judge,
        )

    @cached_property
    def _judging(self) -> PolicyJudging:
        return PolicyJudging(self._organization_id, self._judge)

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
        recorder = self._recorder(Direction.REQUEST)
        background.judge(self._judging, recorder, self._request.monitoring, text)
        if not self._request.enforcing:
            return
        findings = await self._judging.judge_all(self._request.enforcing, text)
        if not is_readable:
            findings = [
                each if each.is_match else PolicyFinding(each.version, None, 0, "unreadable")
                for each in findings
            ]
        recorder.record(findings)
        _decide(findings, Direction.REQUEST)

    async def check_answer(self, text: str) -> None:
        """Refuse as `check_request` does, for the whole answer so far. Called for each window of it."""
        findings = await self._judging.judge_all(self._response.enforcing, text)
        self._response.remember(findings)
        _decide(findings, Direction.RESPONSE)

    def end_answer(self, text: str) -> None:
        """Record what was found, and have monitoring policies judge the answer as far as it came."""
        recorder = self._recorder(Direction.RESPONSE)
        recorder.record(self._response.findings, self._response.judgements)
        if text:
            background.judge(self._judging, recorder, self._response.monitoring, text)

    def _recorder(self, direction: Direction) -> VerdictRecorder:
        return VerdictRecorder(self._project_id, self._request_id, self._judging.judge_name, direction)


class _Side:
    """The policies that read one direction, and what is known of them so far."""

    def __init__(self, versions: Iterable[AttachedVersion], direction: Direction) -> None:
        reading = [version for version in versions if version.reads(direction)]
        self.enforcing = [version for version in reading if version.is_enforcing]
        self.monitoring = [version for version in reading if not version.is_enforcing]
        self.judgements = 0
        self._findings: dict[uuid.UUID, PolicyFinding] = {}

    @property
    def findings(self) -> list[PolicyFinding]:
        return list(self._findings.values())

    def remember(self, findings: Iterable[PolicyFinding]) -> None:
        """Keep for each policy the finding of that window which came nearest to a match."""
        self.judgements += 1
        for finding in findings:
            best = self._findings.get(finding.version.version_id)
            if best is None or best.score is None or finding.score is None or finding.score >= best.score:
                self._findings[finding.version.version_id] = finding


def _decide(findings: Iterable[PolicyFinding], direction: Direction) -> None:
    """Refuse for a match, which is certain, before refusing for what could not be judged."""
    unknown = None
    for finding in findings:
        version = finding.version
        if finding.is_match:
            raise PolicyViolation(policy_id=str(version.policy_id), name=version.name, direction=direction)
        if finding.score is None and unknown is None:
            unknown = version
    if unknown is not None:
        raise JudgeUnavailable(policy_id=str(unknown.policy_id), name=unknown.name, direction=direction)
