"""A request meets the policies that were in force when it began."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from gateway_site.api import envelope
from gateway_site.api.errors import ApiError, JudgeUnavailable, PolicyViolation
from policies.enforcement.attachment import AttachedVersion
from policies.enforcement.background_judging import background, close_policies
from policies.judges import Judge
from policies.judges.logprob import LogprobJudge
from policies.judges.quoted import QuotedJudge
from tests.policies.factories import PHRASE, noted
from tests.policies.fakes import FakeJudge, request_policies, says, version
from tests.policies.judges.judge_server import JudgeServer


def check(
    *versions: AttachedVersion, text: str = "hello", judge: Judge | None = None, **options: Any
) -> None:
    async def run() -> None:
        try:
            await request_policies(*versions, judge=judge).check_request([text], **options)
        finally:
            await background.drain(10)

    asyncio.run(run())


def outcomes() -> list[tuple[str, str, str]]:
    return [(row.mode, row.outcome, row.reason) for row in noted()]


def test_it_works() -> None:
    check(version())
    with pytest.raises(PolicyViolation):
        check(version(), text=f"this is {PHRASE}")

    assert [(row.outcome, row.score, row.direction, row.judge) for row in noted()] == [
        ("no_match", 0.0, "request", "quoted"),
        ("match", 1.0, "request", "quoted"),
    ]


def test_a_phrase_is_found_across_parts() -> None:
    async def run() -> None:
        await request_policies(version()).check_request(["inter", "nal only"])

    with pytest.raises(PolicyViolation):
        asyncio.run(run())


@pytest.mark.parametrize(("judge", "status"), [(says(1.0), 403), (says(None), 503)])
def test_the_error_names_the_policy_and_tells_nothing_else(judge: FakeJudge, status: int) -> None:
    policy = version(name="No secrets", rule="Is Project Falcon told?")

    with pytest.raises(ApiError) as caught:
        check(policy, text="falcons", judge=judge)

    code, headers, body = envelope.render(caught.value, path="/v1/chat/completions")
    error = json.loads(body)["error"]
    assert (code, error["type"]) == (status, "policy_error")
    assert "No secrets" in error["message"]
    assert str(policy.policy_id) in error["message"]
    said = body.decode() + str(headers)
    for secret in ("Falcon", "own words", str(policy.version_id), "fake"):
        assert secret not in said


@pytest.mark.parametrize(
    ("score", "threshold", "is_match"),
    [(0.5, 5000, True), (0.4999, 5000, False), (0.0001, 1, True), (0.0, 1, False), (0.9999, 9999, True)],
)
def test_a_match_is_from_the_threshold_on(score: float, threshold: int, is_match: bool) -> None:
    policy = version(threshold_basis_points=threshold)
    if is_match:
        with pytest.raises(PolicyViolation):
            check(policy, judge=says(score))
    else:
        check(policy, judge=says(score))


@pytest.mark.parametrize("judge", [says(None), says(float("nan")), says(1.5), says(-0.1)])
def test_what_an_enforcing_policy_cannot_know_does_not_pass(judge: FakeJudge) -> None:
    with pytest.raises(JudgeUnavailable):
        check(version(), judge=judge)

    assert [outcome for _, outcome, _ in outcomes()] == ["inconclusive"]


@pytest.mark.parametrize(("answer", "status"), [(b"garbage", 200), (b"{}", 200), (b"No", 500)])
def test_garbage_from_a_model_refuses_where_it_is_enforced_and_nowhere_else(
    answer: bytes, status: int
) -> None:
    async def run(*policies: AttachedVersion) -> None:
        async with JudgeServer(answer=answer, status=status) as server:
            judge = LogprobJudge(base_url=server.base_url, model="guard")
            try:
                await request_policies(*policies, judge=judge).check_request(["hello"])
            finally:
                await background.drain(10)
                await judge.close()

    asyncio.run(run(version(mode="monitoring")))
    with pytest.raises(JudgeUnavailable):
        asyncio.run(run(version()))
    assert [(mode, outcome) for mode, outcome, _ in outcomes()] == [
        ("monitoring", "inconclusive"),
        ("enforcing", "inconclusive"),
    ]


def test_a_slow_judge_ends_at_the_deadline(settings: Any) -> None:
    settings.GATEWAY_JUDGE_SECONDS = 0.1
    judge = says(0.0, seconds=30)
    started = time.monotonic()

    with pytest.raises(JudgeUnavailable):
        check(version(), version(), judge=judge)

    assert time.monotonic() - started < 10
    assert judge.cancelled == 2
    assert outcomes() == [("enforcing", "inconclusive", "deadline")] * 2


@pytest.mark.parametrize("judge", [says(1.0), says(None)])
def test_a_monitoring_policy_records_and_refuses_nothing(judge: FakeJudge) -> None:
    check(version(mode="monitoring"), judge=judge)

    expected = "match" if judge.opinion("", "") else "inconclusive"
    assert [(mode, outcome) for mode, outcome, _ in outcomes()] == [("monitoring", expected)]


def test_a_request_does_not_wait_for_monitoring() -> None:
    judge = says(1.0, seconds=0.2)

    async def run() -> float:
        started = time.monotonic()
        await request_policies(version(mode="monitoring"), judge=judge).check_request(["x"])
        waited = time.monotonic() - started
        await background.drain(10)
        return waited

    assert asyncio.run(run()) < 0.1
    assert len(outcomes()) == 1


def test_what_is_not_judged_before_the_end_is_recorded_so() -> None:
    async def run() -> None:
        policies = [version(mode="monitoring") for _ in range(3)]
        await request_policies(*policies, judge=says(0.0, seconds=30)).check_request(["x"])
        await background.drain(0.05)

    asyncio.run(run())

    assert outcomes() == [("monitoring", "inconclusive", "shutdown")] * 3


def test_a_process_that_ends_leaves_nothing_open() -> None:
    async def run() -> None:
        await request_policies(version(mode="monitoring")).check_request(["x"])
        await close_policies(5)
        await close_policies(5)

    asyncio.run(run())

    assert [outcome for _, outcome, _ in outcomes()] == ["no_match"]


def test_a_direction_is_read_by_the_policies_for_it() -> None:
    check(version(direction="response"), text=PHRASE)
    assert not noted()

    with pytest.raises(PolicyViolation):
        check(version(direction="request"), text=PHRASE)


def test_a_match_is_reported_before_an_inconclusive_policy() -> None:
    judge = FakeJudge(lambda rule, text: 1.0 if "second" in rule else None)

    with pytest.raises(PolicyViolation, match="Second"):
        check(version(rule="Is it first?"), version(rule="Is it second?", name="Second"), judge=judge)


def test_an_unreadable_request_is_inconclusive() -> None:
    with pytest.raises(JudgeUnavailable):
        check(version(), is_readable=False)
    with pytest.raises(PolicyViolation):
        check(version(), text=PHRASE, is_readable=False)
    check(version(mode="monitoring"), is_readable=False)


def test_the_first_match_ends_the_others() -> None:
    judge = FakeJudge(lambda rule, text: 1.0, seconds=0.0)
    slow = FakeJudge(lambda rule, text: 0.0, seconds=30)

    class Both:
        name = "both"

        async def score(self, rule: str, text: str, *, salt: str = "") -> float:
            return await (judge if "fast" in rule else slow).score(rule, text)

        async def close(self) -> None: ...

    with pytest.raises(PolicyViolation):
        check(version(rule="slow?"), version(rule="fast?"), judge=Both())
    assert slow.cancelled == 1


def test_ten_policies_take_about_as_long_as_one() -> None:
    judge = says(0.0, seconds=0.05)

    check(*(version() for _ in range(10)), judge=judge)

    assert len(judge.asked) == judge.at_once == 10


@pytest.mark.slow
def test_a_thousand_policies_are_judged_in_time_and_a_few_at_once(settings: Any) -> None:
    settings.GATEWAY_JUDGE_CONCURRENCY = 32
    judge = says(0.0, seconds=0.01)
    started = time.monotonic()

    check(*(version() for _ in range(1000)), judge=judge)

    assert len(judge.asked) == 1000
    assert judge.at_once == 32
    assert time.monotonic() - started < settings.GATEWAY_JUDGE_SECONDS


def test_a_thousand_policies_on_a_slow_judge_end_at_the_deadline(settings: Any) -> None:
    settings.GATEWAY_JUDGE_SECONDS = 0.3
    judge = says(0.0, seconds=0.1)

    with pytest.raises(JudgeUnavailable):
        check(*(version() for _ in range(1000)), judge=judge)

    assert len(judge.asked) <= 32 * 4


def test_a_text_is_judged_once_by_a_version_and_judge() -> None:
    policy, judge, other = version(), says(0.0), says(0.0)
    other.name = "other"

    for _ in range(3):
        check(policy, judge=judge)
    check(policy, text="another", judge=judge)
    check(version(), judge=judge)
    check(policy, judge=other)

    assert len(judge.asked) == 3
    assert len(other.asked) == 1
    assert len(noted()) == 6


def test_an_inconclusive_score_is_not_cached() -> None:
    policy = version()
    with pytest.raises(JudgeUnavailable):
        check(policy, judge=says(None))

    check(policy, judge=says(0.0))


def test_many_monitored_texts_do_not_pile_up(monkeypatch: Any) -> None:
    monkeypatch.setattr("policies.enforcement.background_judging.MAX_CHARACTERS", 10)

    check(version(mode="monitoring"), text="x" * 11)

    assert outcomes() == [("monitoring", "inconclusive", "overload")]


def test_without_policies_nothing_is_asked() -> None:
    class Nobody(QuotedJudge):
        async def score(self, rule: str, text: str, *, salt: str = "") -> float:
            raise AssertionError

    check(judge=Nobody())
    unattached = request_policies(judge=Nobody())
    assert not (unattached.blocks_request)
    assert not (unattached.blocks_response)
    assert not (unattached.has_response_policies)
