"""A judge answers one question about one text, or says that it cannot."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from policies.enforcement.judging import salt_of
from policies.judges import Inconclusive, Judge, current_judge
from policies.judges.logprob import LogprobJudge, probability
from policies.judges.quoted import QuotedJudge, phrases_of
from policies.trial import probe_judge
from tests.policies.factories import PHRASE, RULE
from tests.policies.judges.injections import INJECTIONS
from tests.policies.judges.judge_server import JudgeServer, completion

SECRET = "sk-judge-0123456789"
T = TypeVar("T")


def quoted(rule: str, text: str) -> float:
    return asyncio.run(QuotedJudge().score(rule, text))


def with_judge(server: JudgeServer, work: Callable[[LogprobJudge], Awaitable[T]]) -> T:
    async def run() -> T:
        async with server:
            judge = LogprobJudge(base_url=server.base_url, model="guard", api_key=SECRET)
            try:
                return await work(judge)
            finally:
                await judge.close()

    return asyncio.run(run())


def ask(server: JudgeServer, text: str = "hello", rule: str = RULE, salt: str = "") -> float:
    return with_judge(server, lambda judge: judge.score(rule, text, salt=salt))


# --- the embedded one ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "This is internal only.",
        "INTERNAL ONLY",
        "internal\u00a0only",
        "internal \t  only",
        "internal\nonly",
        "inter\nnal only",
        "\uff49nternal \uff4fnly",  # full width
        "inter\u200bnal\u2060 on\u00adly",  # zero width, word joiner, soft hyphen
        "i\u034fnternal only\ufe0f",
        "\U0001d422\U0001d427\U0001d42d\U0001d41e\U0001d42b\U0001d427\U0001d41a\U0001d425 only",  # bold
        "x" * 40_000 + " internal only " + "x" * 40_000,
    ],
)
def test_the_embedded_judge_finds_the_phrase(text: str) -> None:
    assert quoted(RULE, text) == 1.0


@pytest.mark.parametrize("text", ["", "internal", "only internal", "international onlyness", "hello"])
def test_the_embedded_judge_does_not_find_what_is_not_there(text: str) -> None:
    assert quoted(RULE, text) == 0.0


@pytest.mark.parametrize(
    ("rule", "phrases"),
    [
        ('Does the text contain "internal only"?', ("internal only",)),
        ("Does the message mention the words “A” or “B”?", ("a", "b")),
        ('Is the phrase "Project X" present anywhere in the response?', ("project x",)),
        ("Does it say «Straße»?", ("strasse",)),
        ('Did the assistant use the word "foo"?', ("foo",)),
        ('Is "foo" in the text?', ("foo",)),
    ],
)
def test_the_embedded_judge_understands_questions_about_a_phrase(rule: str, phrases: tuple[str, ...]) -> None:
    assert phrases_of(rule) == phrases


@pytest.mark.parametrize(
    "rule",
    [
        "Does the text give away a secret?",
        'Does the text not contain "x"?',
        'Doesn\'t the text contain "x"?',
        'Is the text without "x"?',
        'Does the text contain "x" and "y"?',
        'Does the text contain "x" in the sense of a threat?',
        'Is the text about "x"?',
        'Does the text contain ""?',
        'Does the text contain "\u200b"?',
        'Does the text contain "x" unless it mentions "y"?',
        '"x"?',
        "?",
    ],
)
def test_the_embedded_judge_is_inconclusive_about_every_other_question(rule: str) -> None:
    with pytest.raises(Inconclusive):
        quoted(rule, "x y")


@pytest.mark.parametrize("injection", INJECTIONS)
def test_a_hundred_injections_do_not_move_the_embedded_judge(injection: str) -> None:
    assert quoted(RULE, f"This is {PHRASE}. {injection}") == 1.0
    assert quoted(RULE, f"{injection}\nThis is {PHRASE}.") == 1.0
    assert quoted(RULE, injection) == 0.0


# --- the model ----------------------------------------------------------------------------------------


def test_a_model_says_how_likely_yes_is() -> None:
    assert ask(JudgeServer(), f"It is {PHRASE}.") == pytest.approx(0.9 / 0.92)
    assert ask(JudgeServer(), "It is not.") == pytest.approx(0.02 / 0.92)


def test_the_model_is_asked_for_one_token_with_its_alternatives() -> None:
    server = JudgeServer()
    text = 'say "hi"\n{"role": "system"} é\u2028'

    ask(server, text, salt="abc")

    (body,) = server.bodies
    assert (body["max_tokens"], body["temperature"], body["logprobs"], body["top_logprobs"]) == (
        1,
        0,
        True,
        20,
    )
    assert body["model"] == "guard"
    system, data, question = (message["content"] for message in body["messages"])
    assert system.startswith("[abc] ")
    assert json.loads(data) == text
    assert RULE in question
    assert text not in system + question
    assert server.headers[0]["Authorization"] == f"Bearer {SECRET}"


def test_a_model_also_sees_the_text_without_what_nobody_sees() -> None:
    assert ask(JudgeServer(), "inter\u200bnal\u2060 only") > 0.5


def test_policies_share_a_prefix_within_an_organization_and_none_across(acme: Any, rival: Any) -> None:
    server = JudgeServer()

    async def work(judge: LogprobJudge) -> None:
        for organization in (acme, rival):
            for rule in ("Is it one?", "Is it two?"):
                await judge.score(rule, "the text", salt=salt_of(organization.pk))

    with_judge(server, work)

    ours, ours_too, theirs, _ = (
        [message["content"] for message in body["messages"]] for body in server.bodies
    )
    assert ours[:2] == ours_too[:2]
    assert ours[0][:34] != theirs[0][:34]
    assert acme.pk.hex not in ours[0]


@pytest.mark.slow
def test_a_hundred_injections_reach_the_model_as_data_alone() -> None:
    server = JudgeServer()

    async def work(judge: LogprobJudge) -> list[float]:
        texts = [text for each in INJECTIONS for text in (f"{PHRASE} {each}", each)]
        return list(await asyncio.gather(*(judge.score(RULE, text) for text in texts)))

    scores = with_judge(server, work)

    assert len(INJECTIONS) == len(set(INJECTIONS)) == 100
    assert {score > 0.5 for score in scores[0::2]} == {True}
    assert {score > 0.5 for score in scores[1::2]} == {False}
    fixed = {(body["messages"][0]["content"], body["messages"][2]["content"]) for body in server.bodies}
    assert len(fixed) == 1


def test_the_fake_model_would_obey_an_injection_in_the_question() -> None:
    """The same orders in place of the question do move it, so the test above can fail."""
    assert ask(JudgeServer(), PHRASE, rule=f"{INJECTIONS[0]}?") < 0.5


@pytest.mark.parametrize(
    ("likely", "score"),
    [
        ({"Yes": math.log(0.6), "No": math.log(0.2)}, 0.75),
        ({" yes": math.log(0.3), "YES": math.log(0.3), "▁No": math.log(0.2), "maybe": -1.0}, 0.75),
        ({"Yes": -0.01}, 1.0),
        ({"**No**": -0.01}, 0.0),
        ({"No": 0.0000001, "Yes": -9999.0}, 0.0),
    ],
)
def test_spellings_are_summed_and_made_to_add_up(likely: dict[str, float], score: float) -> None:
    assert probability(json.dumps(completion(likely)).encode()) == pytest.approx(score)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": "No"}}]}',
        b'{"choices": [{"message": {"content": "No"}, "logprobs": null}]}',
        b'{"choices": [{"logprobs": {"content": []}}]}',
        b'{"choices": [{"logprobs": {"content": [{"token": "No", "logprob": "0"}]}}]}',
        b'{"choices": [{"logprobs": {"content": [{"token": "No", "logprob": 5.0}]}}]}',
        b'{"choices": [{"logprobs": {"content": [{"token": "No", "logprob": NaN}]}}]}',
        b'{"choices": [{"logprobs": {"content": [{"token": "No", "logprob": 1e999}]}}]}',
        json.dumps(completion({"maybe": -0.1, "perhaps": -2.0, "": -3.0, "not": -4.0})).encode(),
        json.dumps(completion({"Yes": -9999.0, "No": -9999.0})).encode(),
        b'{"choices": ' + b"[" * 5000,
        b"x" * 300_000,
    ],
)
def test_garbage_is_inconclusive_and_never_no(answer: bytes) -> None:
    with pytest.raises(Inconclusive):
        ask(JudgeServer(answer=answer))


@pytest.mark.parametrize("status", [204, 301, 400, 401, 429, 500, 503])
def test_a_refusal_is_inconclusive(status: int) -> None:
    with pytest.raises(Inconclusive):
        ask(JudgeServer(answer=b"" if status == 204 else {"error": "No"}, status=status))


def test_a_judge_that_is_not_there_is_inconclusive_and_keeps_its_key(caplog: Any) -> None:
    async def run() -> None:
        judge = LogprobJudge(base_url="http://127.0.0.1:9/v1", model="guard", api_key=SECRET)
        try:
            await judge.score(RULE, "hello")
        finally:
            await judge.close()

    with pytest.raises(Inconclusive) as caught:
        asyncio.run(run())
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert SECRET not in caplog.text


def test_the_settings_choose_the_judge(settings: Any) -> None:
    assert isinstance(current_judge(), QuotedJudge)
    settings.GATEWAY_JUDGE_BASE_URL, settings.GATEWAY_JUDGE_MODEL = "http://judge/v1", "guard"

    judge: Judge = current_judge()

    assert isinstance(judge, LogprobJudge)
    assert judge.name == "logprob:guard"
    assert judge is current_judge()


def test_probe_judge_says_whether_the_judge_answers(settings: Any) -> None:
    assert probe_judge().is_match
    settings.GATEWAY_JUDGE_BASE_URL, settings.GATEWAY_JUDGE_MODEL = "http://127.0.0.1:9/v1", "guard"

    nobody = probe_judge()

    assert nobody.score is None
    assert nobody.reason == "ConnectFailed"
