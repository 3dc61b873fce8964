"""A client keeps a model's thoughts for us, and can neither read, change nor lend them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from cryptography.fernet import Fernet

from inference.dialects.responses.encrypted_reasoning import seal, unseal

OURS, THEIRS = uuid.uuid4(), uuid.uuid4()


def test_it_works() -> None:
    assert unseal(seal("think 漢", OURS), OURS) == "think 漢"


def test_it_hides_the_reasoning_and_is_never_the_same_twice() -> None:
    assert "think" not in seal("think", OURS)
    assert seal("think", OURS) != seal("think", OURS)


def test_reasoning_sealed_for_another_organization_is_not_opened() -> None:
    with pytest.raises(ValueError, match="not sealed here"):
        unseal(seal("think", OURS), THEIRS)


@pytest.mark.parametrize("change", ["", "AAAA", "not base64!", "ä", "gAAAAABm"])
def test_a_value_that_was_not_sealed_here_is_not_opened(change: str) -> None:
    with pytest.raises(ValueError, match="not sealed here"):
        unseal(change, OURS)


def test_one_changed_character_is_noticed() -> None:
    sealed = seal("think", OURS)

    for index in range(2, len(sealed) - 4, 5):
        other = "A" if sealed[index] != "A" else "B"
        with pytest.raises(ValueError, match="not sealed here"):
            unseal(sealed[:index] + other + sealed[index + 1 :], OURS)


def test_an_older_key_still_opens_it_and_a_key_that_is_gone_does_not(settings: Any) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [old]
    sealed = seal("think", OURS)

    settings.ENCRYPTION_KEYS = [new, old]
    assert unseal(sealed, OURS) == "think"

    settings.ENCRYPTION_KEYS = [new]
    with pytest.raises(ValueError, match="not sealed here"):
        unseal(sealed, OURS)
