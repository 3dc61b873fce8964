"""
Which vocabulary a model's tokens are counted with, chosen by what the model is called.

A name says the family: `acme/gpt-4o`, `meta.llama3-1-70b-instruct-v1:0`, `/models/Qwen2.5-7B-Q4_K_M.gguf`.
Case, separators and what is in front of the family do not matter. An operator who knows better says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

# Where nothing better is known. What others make of a text is within a fifth of it, as a rule.
USUAL_VOCABULARY: Final = "o200k_base"


class VocabularyChoice(Struct, frozen=True):
    """A vocabulary for a model, and whether it is the model's own rather than the nearest one."""

    name: str
    is_exact: bool


EXACT, NEAREST = True, False

# The first row whose pattern is in the name counts. A name is in lower case here, with `-` for whatever
# separates. Open weights come first: models that were trained on the answers of another carry its name too.
_FAMILIES: Final[tuple[tuple[str, str, bool], ...]] = (
    # Distilled into another family: its vocabulary with marks of one's own.
    (r"deepseek.*qwen-?3(?![0-9])", "qwen3", NEAREST),
    (r"deepseek.*qwen", "qwen2", NEAREST),
    (r"deepseek.*llama", "llama3", NEAREST),
    (r"llama-?v?3[123]?(?![0-9b])", "llama3", EXACT),
    (r"smollm-?3", "llama3", NEAREST),
    # Hosted only, so that nobody can see what they count with.
    (r"qwen.*-(?:max|plus|flash|turbo)(?![a-z])", "qwen3", NEAREST),
    # From 3.5 on there is another vocabulary.
    (r"qwen-?3(?!-?[5-9](?![0-9b]))(?![0-9])", "qwen3", EXACT),
    (r"qwen-?2(?:p?5)?(?![0-9])", "qwen2", EXACT),
    (r"qwq", "qwen2", EXACT),
    (r"qwen", "qwen3", NEAREST),
    (r"deepseek-?v3|deepseek-?r1(?!-[0-9]{1,2}b)|deepseek-(?:chat|reasoner)", "deepseek_v3", EXACT),
    (r"deepseek", "deepseek_v3", NEAREST),
    (r"gemma-?3(?![0-9n])", "gemma3", EXACT),
    (r"gemma|gemini", "gemma3", NEAREST),
    (r"glm-?4(?:-?[56])?v?(?![0-9])(?!-[1-9](?![0-9b]))", "glm4", EXACT),
    (r"glm", "glm4", NEAREST),
    (r"kimi-?k2", "kimi_k2", EXACT),
    (r"kimi|moonshot", "kimi_k2", NEAREST),
    (r"phi-?4-(?:mini|multimodal)", "o200k_base", NEAREST),
    (r"phi-?4", "phi4", EXACT),
    (r"mistral-nemo|pixtral-12b|ministral-8b|devstral-small|magistral-small", "mistral_v3", EXACT),
    (r"mistral-small-(?:3|24b|2501|2503|2506)", "mistral_v3", EXACT),
    (r"mistral|ministral|mixtral|codestral|devstral|magistral|pixtral|voxtral", "mistral_v3", NEAREST),
    (r"olmo-?2", "cl100k_base", NEAREST),
    (r"gpt-?oss", "o200k_harmony", EXACT),
    (r"gpt-?4o|gpt-4-?[15](?![0-9])|gpt-5|chatgpt", "o200k_base", EXACT),
    # Nothing but a vendor in front: reasoning models of others call themselves after these.
    (r"^(?:openai-|azure-|ft-)*o[134](?![a-z0-9])", "o200k_base", EXACT),
    (r"gpt-4(?![a-z0-9])|gpt-3-5|gpt-?35-turbo", "cl100k_base", EXACT),
    (r"gpt-?4", "cl100k_base", NEAREST),
)
_ROWS: Final = tuple(
    (re.compile(pattern if pattern.startswith("^") else rf"(?<![a-z0-9])(?:{pattern})"), choice)
    for pattern, choice in (
        (pattern, VocabularyChoice(vocabulary, is_exact)) for pattern, vocabulary, is_exact in _FAMILIES
    )
)
_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")


def choose_vocabulary(model_id: str, upstream_ids: Iterable[str] = ()) -> VocabularyChoice:
    """
    The vocabulary of a model, by its names on its backends, else by its own id.

    A backend's name for it is the better witness, as customers may know the model by any id. Where two
    backends name different families, neither vocabulary is exact.
    """
    found = [choice for name in upstream_ids if (choice := _family(name)) is not None]
    if not found:
        return _family(model_id) or VocabularyChoice(USUAL_VOCABULARY, NEAREST)
    is_exact = all(choice == found[0] for choice in found) and found[0].is_exact
    return VocabularyChoice(found[0].name, is_exact)


def complete_vocabulary(
    changes: Mapping[str, Any], *, is_new: bool, model_id: str, upstream_ids: Iterable[str]
) -> dict[str, Any]:
    """
    The changes to a model, with its vocabulary where they leave that open, and whether that is exact.

    A new model without one, and any whose `tokenizer` is to be empty, gets that of its family. Whoever names
    a vocabulary and says no more means that it is exact.
    """
    wanted = dict(changes)
    if not wanted.get("tokenizer", "" if is_new else USUAL_VOCABULARY):
        choice = choose_vocabulary(model_id, upstream_ids)
        is_exact = choice.is_exact and wanted.get("is_tokenizer_exact", True)
        wanted |= {"tokenizer": choice.name, "is_tokenizer_exact": is_exact}
    elif "tokenizer" in wanted:
        wanted.setdefault("is_tokenizer_exact", True)
    return wanted


def vocabulary_text(name: str, is_exact: bool) -> str:
    """A model's vocabulary in words: `llama3`, or `o200k_base, approximate`."""
    return name if is_exact else f"{name}, approximate"


def last_segment(name: str) -> str:
    """What a name ends with after the last `/`, in lower case and with `-` for whatever separates."""
    return _plain(name.rpartition("/")[2])


def _family(name: str) -> VocabularyChoice | None:
    """The choice of the first family in a name: in its last segment, else in the path before it."""
    for text in (last_segment(name), _plain(name.rpartition("/")[0])):
        for pattern, choice in _ROWS:
            if pattern.search(text):
                return choice
    return None


def _plain(text: str) -> str:
    return _SEPARATORS.sub("-", text.lower()).strip("-")
