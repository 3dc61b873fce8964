"""A new password is long, uncommon, not the person's own name, and no repetition."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
OLD = "correct horse battery"
REFUSED = {
    "one character": "aaaaaaaaaaaa",
    "two characters": "abababababab",
    "a word again and again": "abcabcabcabc",
    "a word and a half": "tulip9tulip9tul",
    "in two cases": "TulipTULIPtulip",
    "digits": "123456789012",
    "digits backwards": "987654321098",
    "the alphabet": "abcdefghijklm",
    "keys": "qwertyuiopqwe",
    "runs": "aaaabbbbcccc1234",
    "common": "passwordpassword",
    "common, with digits": "password1234",
    "the own name": "ada-lovelace",
    "short": "hX4!uw9,eGz",
    "endless": "correct horse" * 400,
}
TAKEN = [
    "correct horse battery staple",
    "Xu3-kkd-9aQ-1zz",
    "vK2gQZp0w_Yb6c1sT3hL",
    "пароль из трёх слов",
    "x" * 3 + "Q7!bv-2 mmk",
]


@pytest.mark.parametrize("password", REFUSED.values(), ids=REFUSED)
def test_a_password_that_is_easy_to_guess_is_refused(password: str) -> None:
    user = User.objects.create_superuser("ada.lovelace", password=OLD)
    client = Client()
    client.force_login(user)
    typed = {"old_password": OLD, "new_password1": password, "new_password2": password}

    answer = client.post(reverse("admin:password_change"), typed)

    assert answer.status_code == 200
    assert (
        "new_password2" in answer.context["form"].errors or "new_password1" in answer.context["form"].errors
    )


@pytest.mark.parametrize("password", TAKEN)
def test_a_password_that_is_hard_to_guess_is_accepted(password: str) -> None:
    validate_password(password, User(username="ada.lovelace"))


def test_a_refusal_says_why() -> None:
    with pytest.raises(ValidationError, match="repeats itself"):
        validate_password("aaaaaaaaaaaa")
    with pytest.raises(ValidationError, match="at most 4,096 characters"):
        validate_password("correct horse " * 300)
