"""Management commands, called as an operator and as a script would."""

from __future__ import annotations

import io
import json
from typing import Any

from django.core.management import call_command


def run(*words: object) -> dict[str, Any]:
    printed = io.StringIO()
    call_command(*map(str, words), "--json", stdout=printed)
    outcome: dict[str, Any] = json.loads(printed.getvalue())
    return outcome


def say(*words: object) -> str:
    printed = io.StringIO()
    call_command(*map(str, words), stdout=printed)
    return printed.getvalue()
