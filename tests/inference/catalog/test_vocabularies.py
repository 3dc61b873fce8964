"""Which vocabulary a model is counted with when its operator names none."""

from __future__ import annotations

import pytest
from msgspec import structs

from billing.prices.card import DEFAULT_IMAGE_TOKENS
from inference.catalog import services
from inference.catalog.image_tokens import image_tokens_of
from inference.catalog.vocabularies import USUAL_VOCABULARY, choose_vocabulary, vocabulary_text
from inference.tokenizer import VOCABULARIES
from tests.factories import SOMEONE
from tests.harness.commands import run, say
from tests.inference.catalog.factories import make_model

EXACT = {
    "o200k_base": [
        "gpt-4o",
        "gpt-4o-mini-2024-07-18",
        "acme/GPT_4O",
        "ft:gpt-4o-mini-2024-07-18:acme::abc",
        "gpt4o",
        "gpt-4.1-nano",
        "gpt-4.5-preview",
        "openrouter/openai/gpt-5.1-codex",
        "gpt-5",
        "o1",
        "openai/o3-mini",
        "o4-mini-2025-04-16",
        "chatgpt-4o-latest",
    ],
    "o200k_harmony": ["gpt-oss-20b", "openai/gpt-oss-120b:free", "/models/GPT-OSS-20B-MXFP4.gguf"],
    "cl100k_base": [
        "gpt-4",
        "gpt-4-1106-preview",
        "gpt-4-turbo",
        "gpt-4-32k",
        "gpt-3.5-turbo",
        "gpt-35-turbo",
    ],
    "llama3": [
        "meta-llama/Llama-3.1-8B-Instruct",
        "llama3.2:3b",
        "meta.llama3-1-70b-instruct-v1:0",
        "accounts/fireworks/models/llama-v3p1-8b-instruct",
        "/srv/Meta-Llama-3-8B-Instruct.Q4_K_M.gguf",
        "llama-3.3-70b-versatile",
        "llama33-70b",
        "meta-llama-3-70b",
    ],
    "qwen2": ["Qwen/Qwen2.5-7B-Instruct", "qwen2_5-coder:7b", "qwen2-72b", "QwQ-32B"],
    "qwen3": [
        "Qwen/Qwen3-8B",
        "qwen3:30b-a3b",
        "qwen3-coder-480b-a35b-instruct",
        "qwen3-next-80b",
        "qwen-3-32b",
    ],
    "deepseek_v3": [
        "deepseek-chat",
        "deepseek-reasoner",
        "deepseek-ai/DeepSeek-V3.1",
        "deepseek-r1",
        "deepseek_v3",
    ],
    "gemma3": ["google/gemma-3-27b-it", "gemma3:4b"],
    "glm4": ["glm-4-9b-chat", "zai-org/GLM-4.5-Air", "z-ai/glm-4.6", "glm4"],
    "kimi_k2": ["moonshotai/Kimi-K2-Instruct", "kimi-k2-0905-preview"],
    "phi4": ["microsoft/phi-4", "phi4:14b", "phi-4-reasoning-plus"],
    "mistral_v3": [
        "open-mistral-nemo",
        "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        "Devstral-Small-2505",
    ],
}
NEAREST = {
    "o200k_base": [
        "claude-sonnet-4-5",
        "us.anthropic.claude-3-haiku-20240307-v1:0",
        "grok-4",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "phi-4-mini-instruct",
        "llama-2-7b",
        "llama-30b",
        "open_llama_3b",
        "meta-llama/Llama-4-Scout",
        "model",
        "foo1",
        "AIDC-AI/Marco-o1",
        "",
    ],
    "cl100k_base": ["gpt4all-j", "gpt4-x-alpaca", "allenai/OLMo-2-7B"],
    "gemma3": ["gemini-2.5-pro", "gemma-2-9b", "google/gemma-3n-e4b-it"],
    "llama3": ["deepseek-r1-distill-llama-70b", "SmolLM3-3B"],
    "qwen2": ["deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"],
    "qwen3": ["deepseek-r1-0528-qwen3-8b", "qwen-max", "qwen3.5-27b", "qwen-plus-latest"],
    "deepseek_v3": ["deepseek-coder-v2", "deepseek-r1:8b", "deepseek-r1:32b"],
    "glm4": ["glm-5", "glm-4.7"],
    "kimi_k2": ["moonshot-v1-8k"],
    "mistral_v3": ["mistral-large-2407", "mixtral-8x7b", "Mistral-7B-Instruct-v0.3", "mistral-small-2409"],
}


@pytest.mark.parametrize(
    ("vocabulary", "is_exact", "names"),
    [
        *((vocabulary, True, names) for vocabulary, names in EXACT.items()),
        *((vocabulary, False, names) for vocabulary, names in NEAREST.items()),
    ],
)
def test_a_family_is_known_by_its_name(vocabulary: str, is_exact: bool, names: list[str]) -> None:
    for name in names:
        choice = choose_vocabulary(name)
        assert (choice.name, choice.is_exact) == (vocabulary, is_exact), name


def test_every_vocabulary_is_there_and_has_a_family() -> None:
    assert set(EXACT) == set(VOCABULARIES)
    assert USUAL_VOCABULARY in VOCABULARIES


def test_the_tokens_of_an_image_are_usual_unless_a_family_counts_more() -> None:
    assert image_tokens_of("acme/fast") == image_tokens_of("gpt-4o") == DEFAULT_IMAGE_TOKENS
    assert image_tokens_of("acme/fast", ["openai/GPT-4o-mini-2024-07-18"]) == 48_200
    assert image_tokens_of("gpt-4.1-nano") > image_tokens_of("o4-mini") > DEFAULT_IMAGE_TOKENS


def test_a_path_names_the_family_where_the_file_does_not() -> None:
    path = "/cache/models--Qwen--Qwen2.5-7B-Instruct/snapshots/0a1b2c3d/model.gguf"

    assert choose_vocabulary(path).name == "qwen2"


def test_the_name_on_the_backend_is_believed_before_the_id() -> None:
    assert choose_vocabulary("acme/gpt-4o", ["llama3.1:8b"]).name == "llama3"
    assert choose_vocabulary("acme/gpt-4o", ["deployment-7"]).name == "o200k_base"
    assert choose_vocabulary("acme/fast", ["deployment-7", "gpt-oss-20b"]).name == "o200k_harmony"


def test_backends_of_two_families_make_a_vocabulary_approximate() -> None:
    choice = choose_vocabulary("acme/fast", ["gpt-4o", "llama3.1:8b"])

    assert vocabulary_text(choice.name, choice.is_exact) == "o200k_base, approximate"
    assert choose_vocabulary("acme/fast", ["gpt-4o", "gpt-4.1"]).is_exact


@pytest.mark.django_db
def test_a_model_added_without_a_tokenizer_gets_that_of_its_family() -> None:
    run("add_backend", "sim", "--kind", "simulator")
    add = ("add_model", "acme/fast", "--backend", "sim", "--upstream-id", "llama3.1:8b")

    chosen = run(*add)
    named = run(*add, "--tokenizer", "qwen3")
    kept = run(*add, "--context-length", "100000")
    approximate = run(*add, "--tokenizer", "qwen3", "--approximate-tokenizer")
    emptied = run(*add, "--tokenizer", "")

    assert (chosen["tokenizer"], chosen["is_tokenizer_exact"]) == ("llama3", True)
    assert (named["tokenizer"], named["is_tokenizer_exact"]) == ("qwen3", True)
    assert (kept["tokenizer"], kept["is_tokenizer_exact"]) == ("qwen3", True)
    assert (approximate["tokenizer"], approximate["is_tokenizer_exact"]) == ("qwen3", False)
    assert (emptied["tokenizer"], emptied["is_tokenizer_exact"]) == ("llama3", True)
    assert "counted by o200k_base, approximate." in say("add_model", "claude", "--backend", "sim")


@pytest.mark.django_db
def test_the_first_card_of_a_model_holds_what_its_family_counts_for_an_image() -> None:
    model = make_model("gpt-4o-mini")
    assert model.price_version is not None
    assert model.price_version.card.image_tokens == 48_200

    own = structs.replace(model.price_version.card, image_tokens=900)
    services.save_model(model_id=model.pk, changes={}, card=own, actor=SOMEONE)
    changed, _ = services.save_model(
        model_id=model.pk, changes={}, prices={"completion": 3_000}, actor=SOMEONE, is_confirmed=True
    )
    assert changed.price_version is not None
    assert changed.price_version.card.image_tokens == 900
