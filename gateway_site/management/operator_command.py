"""The base of the operators' commands: `--json`, and one clear line for an error."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, ProgrammingError

from gateway_site.api.errors import ApiError


class OperatorCommand(BaseCommand):
    """
    A command whose outcome is one object.

    Subclasses write `perform`, which returns that object, and `describe`, which says it to a person.
    """

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
        self.add_own_arguments(parser)

    def add_own_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments that a command has in addition to `--json`."""

    def handle(self, *args: Any, as_json: bool, **options: Any) -> None:
        try:
            outcome = self.perform(**options)
        except ApiError as error:
            raise CommandError(error.message) from None
        except (OperationalError, ProgrammingError) as error:
            first_line = str(error).strip().splitlines()[0]
            raise CommandError(
                f"The database refused ({first_line}). Is it migrated? See `doctor`."
            ) from None
        self.stdout.write(json.dumps(outcome) if as_json else self.describe(outcome))
        if complaint := self.complaint_about(outcome):
            raise CommandError(complaint)

    def complaint_about(self, outcome: dict[str, Any]) -> str | None:
        """The reason why a command that did its work should exit with 1 all the same, or None."""
        return None

    def perform(self, **options: Any) -> dict[str, Any]:
        raise CommandError("This command does nothing.")

    def describe(self, outcome: dict[str, Any]) -> str:
        return "\n".join(f"{name}: {value}" for name, value in outcome.items())
