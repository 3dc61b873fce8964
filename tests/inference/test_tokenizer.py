"""How long a prompt is, before anyone has counted it."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

import pytest
from msgspec import structs

from billing.prices.card import PriceCard
from inference import tokenizer
from inference.dialects.texts import prompt_texts
from inference.prompt import ImagePart, OtherPart, Prompt, TextPart, Tool, Turn
from inference.serving.body_pool import SMALL, BodyWork

CARD = structs.replace(PriceCard.flat(prompt=1, completion=2), image_tokens=48_200, file_tokens=9_000)
PDF = base64.b64encode(bytes(range(256)) * 400).decode()


def prompt(said: str = "Hello there", **fields: Any) -> Prompt:
    return Prompt(model="m", turns=(Turn(role="user", content=said),), **fields)


def size(asked: Prompt, vocabulary: str = "o200k_base", *, is_exact: bool = True) -> tokenizer.PromptSize:
    return asyncio.run(tokenizer.size_of(asked, vocabulary, is_exact=is_exact, card=CARD))


@pytest.mark.parametrize("vocabulary", tokenizer.VOCABULARIES)
def test_every_vocabulary_counts(vocabulary: str) -> None:
    count = tokenizer.counter(vocabulary)

    assert 2 <= count("Hello there") <= 4
    assert count("") == 0


def test_counts_that_are_known() -> None:
    # From the tokenizers' own documentation.
    assert tokenizer.counter("cl100k_base")("tiktoken is great!") == 6
    assert tokenizer.counter("o200k_base")("antidisestablishmentarianism") == 6


def test_marks_of_a_template_in_a_text_are_text() -> None:
    assert tokenizer.counter("o200k_base")("<|endoftext|>") > 1


def test_a_vocabulary_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="klingon"):
        tokenizer.counter("klingon")


@pytest.mark.slow
@pytest.mark.parametrize(
    "said", ["plain", "wörter", "日本語のテキスト", "😀" * 20, "\x00\n\t ", "x = 1\n" * 50]
)
def test_the_bound_by_the_nearest_vocabulary_holds_for_every_other(said: str) -> None:
    upper = size(prompt(said), is_exact=False).upper

    for vocabulary in tokenizer.VOCABULARIES:
        assert tokenizer.counter(vocabulary)(said) <= min(upper, len(said.encode()))


def test_the_nearest_vocabulary_is_held_at_twice_its_count_and_likely_at_that() -> None:
    said = "The quick brown fox jumps over the lazy dog. " * 20
    tokens = tokenizer.counter("o200k_base")(said)
    exact, nearest = size(prompt(said)), size(prompt(said), is_exact=False)

    assert nearest.upper == exact.upper + tokens
    assert nearest.likely == exact.likely
    assert nearest.count_tokens(said) == tokens


def test_no_bound_is_above_the_bytes_of_a_prompt() -> None:
    said = "7 % @ " * 10  # more than half a token for each byte
    exact, nearest = size(prompt(said)), size(prompt(said), is_exact=False)
    tokens = tokenizer.counter("o200k_base")(said)

    assert tokens < len(said) < 2 * tokens
    assert nearest.upper == exact.upper + len(said) - tokens


def test_a_long_prompt_is_bounded_alike_wherever_it_is_counted() -> None:
    asked = prompt("Wörter und Sätze. " * 2_000)

    def counted(work: BodyWork) -> tokenizer.PromptSize:
        size_of = tokenizer.size_of(asked, "o200k_base", is_exact=False, card=CARD, work=work)
        return asyncio.run(size_of)

    small, large = counted(SMALL), counted(BodyWork(is_large=True))
    assert (small.upper, small.likely) == (large.upper, large.likely)
    assert small.likely < small.upper < 2 * small.likely + 200


def test_all_that_a_model_reads_is_counted() -> None:
    tool = Tool("weather", "The weather of a city.", {"type": "object", "properties": {"city": {}}})
    plain, with_tool = size(prompt()), size(prompt(tools=(tool,)))

    assert with_tool.likely > plain.likely
    assert with_tool.upper > plain.upper + tokenizer.AROUND_TOOLS


def test_an_image_is_held_for_and_its_data_is_not_counted() -> None:
    picture = ImagePart("data:image/png;base64," + "A" * 100_000)
    seen = Prompt(model="m", turns=(Turn(role="user", content=(TextPart("Look"), picture)),), images=1)
    unseen = Prompt(model="m", turns=(Turn(role="user", content=(TextPart("Look"),)),))

    assert size(seen).upper == size(unseen).upper + 48_200
    assert size(seen).likely == size(unseen).likely


@pytest.mark.parametrize(
    "part",
    [
        OtherPart("file", {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}"}}),
        OtherPart("file", {"type": "file", "file": {"file_data": PDF[:76] + "\n" + PDF[76:]}}),
        OtherPart("input_audio", {"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}}),
    ],
    ids=["data address", "lines", "audio"],
)
def test_a_file_is_held_for_and_its_data_is_not_counted(part: OtherPart) -> None:
    with_file = Prompt(model="m", turns=(Turn(role="user", content=(TextPart("Look"), part)),))
    without = Prompt(model="m", turns=(Turn(role="user", content=(TextPart("Look"),)),))

    assert 9_000 < size(with_file).upper - size(without).upper < 9_100
    assert 0 < size(with_file).likely - size(without).likely < 30
    # Policies judge all of it.
    assert any(PDF[-80:] in text for text in prompt_texts(with_file))


@pytest.mark.parametrize(
    "said", ["This is no data at all, but a text. " * 100, "data:text/plain," + "word" * 400]
)
def test_a_text_in_the_guise_of_a_file_is_counted_as_a_text(said: str) -> None:
    part = OtherPart("file", {"type": "file", "file": {"file_data": said}})
    asked = Prompt(model="m", turns=(Turn(role="user", content=(part,)),))

    assert size(asked).likely > tokenizer.counter("o200k_base")(said)


def test_an_earlier_refusal_is_a_text_and_no_file() -> None:
    part = OtherPart("refusal", {"type": "refusal", "refusal": "I cannot help with that."})
    asked = Prompt(model="m", turns=(Turn(role="assistant", content=(part,)),))

    assert size(asked).upper < 1_000


def test_upper_is_never_less_than_likely() -> None:
    for turns in (1, 10, 1000):
        asked = Prompt(model="m", turns=tuple(Turn(role="user", content="x") for _ in range(turns)))
        assert size(asked).upper >= size(asked).likely + turns


def test_a_long_text_is_counted_beside_the_loop_and_nearly_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "The quick brown fox jumps over the lazy dog. " * 2_000
    threads: set[str] = set()
    count = tokenizer.count_pieces

    def watched(*args: Any) -> int:
        threads.add(threading.current_thread().name)
        return count(*args)

    monkeypatch.setattr(tokenizer, "count_pieces", watched)
    counted = size(prompt(said)).likely

    assert threads
    assert threading.main_thread().name not in threads
    exact = tokenizer.counter("o200k_base")(said)
    assert exact <= counted <= exact * 1.01 + 10


def test_a_short_text_costs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    size(prompt())  # loads the vocabulary
    monkeypatch.setattr(asyncio, "to_thread", None)

    assert size(prompt("word " * 3_000)).likely > 3_000


def test_the_simulator_never_counts_more_than_is_held_for() -> None:
    asked = prompt("Hello, wörld! " * 50, tools=(Tool("f", "g", {"a": [1, 2, {"b": "c"}]}),))

    assert sum(map(tokenizer.counter("o200k_base"), prompt_texts(asked))) <= size(asked).upper


def test_requests_that_come_at_once_load_a_vocabulary_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer._encoder.cache_clear()
    monkeypatch.setattr(tokenizer, "_ready", {})
    loaded = []
    original = tokenizer.splintr.Tokenizer.from_pretrained

    def load(vocabulary: str) -> Any:
        loaded.append(vocabulary)
        return original(vocabulary)

    monkeypatch.setattr(tokenizer.splintr, "Tokenizer", type("Tokenizer", (), {"from_pretrained": load}))

    async def come_at_once() -> None:
        await asyncio.gather(
            *(tokenizer.size_of(prompt(), "mistral_v3", is_exact=True, card=CARD) for _ in range(8))
        )

    asyncio.run(come_at_once())

    assert loaded == ["mistral_v3"]
