"""What people type to log in, bounded before anything is computed on it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest

from gateway_site.console.kit.model_admin import AuthenticationForm

MOST_NAME_CHARACTERS = 150
MOST_PASSWORD_CHARACTERS = 4096
MOST_NEXT_CHARACTERS = 2048


class LogInForm(AuthenticationForm):
    """The theme's form, which hashes whatever it is given, behind bounds on both fields."""

    def __init__(self, request: HttpRequest | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        bounds = {"username": MOST_NAME_CHARACTERS, "password": MOST_PASSWORD_CHARACTERS}
        for name, most in bounds.items():
            field = self.fields[name]
            field.validators.append(MaxLengthValidator(most))
            field.widget.attrs["maxlength"] = most


def comparable(name: str) -> str:
    """A name as it would be looked up, and in one case: there are as many spellings as letters."""
    # Normalizing makes a text up to 18 times as long.
    name = name.strip()
    if len(name) > MOST_NAME_CHARACTERS or not name.isprintable():
        return ""
    return str(User.normalize_username(name)).casefold()
