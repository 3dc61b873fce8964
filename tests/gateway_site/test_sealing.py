"""Secrets open with the keys that sealed them, in the context they were sealed for, and for ever."""

from __future__ import annotations

import uuid
from datetime import date
from typing import Any

import pytest
from cryptography.fernet import Fernet

from gateway_site import sealing
from gateway_site.sealing import CannotDecrypt, InvalidEncryptionKeys
from inference.catalog import credentials_vault
from inference.catalog.credentials_vault import CredentialUnreadable
from inference.dialects.responses import encrypted_reasoning
from organization import expiring_secrets
from organization.audit import chain
from organization.models import SecretDay

# As earlier versions stored them, or gave them to clients to keep.
OLD_KEY = "qU3bWc1n0Gq2v6cGm0Ykq8o4n5h3Jt8yXb7rT2sLw1E="
OLD_CREDENTIAL = (
    b"gAAAAABq-eFzJZivWTBdZYEwFDCDQcANDAivePdy2hy4jzjpBdRBa97cF3Mb1Ua3TsWmJDTvee7vhwsI-p2JAVVMiSTn8Oge4w=="
)
OLD_REASONING = "AUdQEj8SBT9qnO2EAZG-KVqrXKC5kmRVaX0mzZReH0G4bgvg71w="
OLD_WRAPPED_DAY_KEY = (
    b"gAAAAABq-eFzErBlXiOEorWgc1Tlir6yEI-IloD9GiQn_eH5y9XWNNTPSAKQSIYlT6ckwsyKod2u0sJCDmgt2Xl475IOTx49BuqIx"
    b"wIYaCSYQHXL3OUcE1wtAjghq0Zhv9wtntHpH4Oi"
)
OLD_SECRET = bytes.fromhex("8d796f9aebf62d56fca59854ac01431d18b2082268638250daa0ed8403a343b6671bc2")
OLD_AUDIT_KEY = "ad881c7249492bad0c289094f5f1565b773137b6cc503ec72353d3c465fab991"


@pytest.fixture
def rotated(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode(), OLD_KEY]


def test_a_credential_of_an_earlier_version_still_opens(rotated: None) -> None:
    assert credentials_vault.unseal(memoryview(OLD_CREDENTIAL)) == "sk-upstream-漢"


def test_reasoning_of_an_earlier_version_still_opens(rotated: None) -> None:
    organization_id = uuid.UUID("0190a5b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b")

    assert encrypted_reasoning.unseal(OLD_REASONING, organization_id) == "think 漢"


@pytest.mark.django_db
def test_a_secret_of_an_earlier_version_still_opens(rotated: None) -> None:
    day = date(2026, 1, 31)
    SecretDay.objects.create(day=day, wrapped_key=OLD_WRAPPED_DAY_KEY)

    assert expiring_secrets.unseal(day, memoryview(OLD_SECRET), bound_to="record-1") == "gwk_漢"


def test_the_audit_trail_of_an_earlier_version_is_still_verified(rotated: None) -> None:
    assert chain._signing_keys()[1].hex() == OLD_AUDIT_KEY


def test_a_key_that_is_gone_opens_nothing(settings: Any) -> None:
    token = sealing.encrypt(b"secret")
    assert sealing.decrypt(token) == b"secret"

    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(CannotDecrypt):
        sealing.decrypt(token)


def test_what_is_bound_opens_only_with_its_key_and_context() -> None:
    key = sealing.new_key()
    ciphertext = sealing.encrypt_bound(key, b"secret", bound_to=b"ours")
    assert sealing.decrypt_bound(key, ciphertext, bound_to=b"ours") == b"secret"

    for other_key, changed, bound_to in [
        (sealing.new_key(), ciphertext, b"ours"),
        (key, ciphertext, b"theirs"),
        (key, ciphertext[:-1], b"ours"),
        (key, ciphertext[:5], b"ours"),
        (key, b"", b"ours"),
    ]:
        with pytest.raises(CannotDecrypt):
            sealing.decrypt_bound(other_key, changed, bound_to=bound_to)


def test_a_purpose_has_keys_of_its_own() -> None:
    assert set(sealing.purpose_keys(b"one")).isdisjoint(sealing.purpose_keys(b"another"))


def test_invalid_encryption_keys_are_reported(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = ["not a Fernet key"]

    with pytest.raises(InvalidEncryptionKeys):
        sealing.encrypt(b"secret")
    with pytest.raises(CredentialUnreadable, match="must be Fernet keys"):
        credentials_vault.seal("secret")
    with pytest.raises(CredentialUnreadable, match="must be Fernet keys"):
        credentials_vault.unseal(OLD_CREDENTIAL)
