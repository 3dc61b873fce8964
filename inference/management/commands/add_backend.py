from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from gateway_site.management.operator_command import OperatorCommand
from inference.backends.kinds import KINDS, all_options, kinds_with_option
from inference.catalog import services
from inference.models import Backend
from organization.audit.trail import Actor


class Command(OperatorCommand):
    help = "Add a backend, or change the one of this name."

    def add_own_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--kind", required=True, choices=list(KINDS))
        parser.add_argument("--base-url", help="openai: with its /v1; without one, OPENAI_BASE_URL")
        # The key itself on a command line would be in the history and in the list of processes.
        parser.add_argument("--api-key-env", metavar="VAR", help="the environment variable with the API key")
        for name, option in all_options().items():
            if option.is_list:
                parser.add_argument(f"--{name}", action="append", metavar="NAME", help=option.help)
            else:
                parser.add_argument(f"--{name}", choices=option.choices or None, help=option.help)

    def perform(
        self, *, name: str, kind: str, base_url: str | None, api_key_env: str | None, **options: Any
    ) -> dict[str, Any]:
        named = {option: options[option] for option in all_options() if options[option]}
        for option in named:
            if kind not in (kinds := kinds_with_option(option)):
                raise CommandError(f"--{option} is for backends of the kind {' or '.join(kinds)}.")
        existing = Backend.objects.filter(name=name).first()
        default_base_url, key_variable = KINDS[kind].default_base_url, KINDS[kind].default_key_variable
        if base_url is None and existing and existing.kind == kind:
            base_url = existing.base_url
        elif base_url is None and default_base_url is not None:
            base_url = default_base_url()
            # Only together with its address: a key must not go to whatever host was named.
            if api_key_env is None and os.environ.get(key_variable):
                api_key_env = key_variable
        kept = existing.options if existing and existing.kind == kind else {}
        backend, is_new = services.save_backend(
            name=name,
            kind=kind,
            base_url=base_url or "",
            credential=self._credential(api_key_env),
            options={**kept, **named},
            actor=Actor.command("add_backend"),
        )
        return {
            "name": backend.name,
            "kind": backend.kind,
            "base_url": backend.base_url,
            "server": backend.options.get("server"),
            "has_credential": backend.credential_ciphertext is not None,
            "created": is_new,
        }

    def describe(self, outcome: dict[str, Any]) -> str:
        verb = "Added" if outcome["created"] else "Changed"
        address = f" at {outcome['base_url']}" if outcome["base_url"] else ""
        key = "with an API key" if outcome["has_credential"] else "without an API key"
        return f"{verb} backend {outcome['name']} ({outcome['kind']}){address}, {key}."

    @staticmethod
    def _credential(variable: str | None) -> str | None:
        if variable is None:
            return None
        value, path = os.environ.get(variable, "").strip(), os.environ.get(f"{variable}_FILE")
        if not value and path:
            try:
                value = Path(path).read_text().strip()
            except (OSError, UnicodeDecodeError):
                raise CommandError(f"{variable}_FILE cannot be read.") from None
        if not value:
            raise CommandError(f"The environment variable {variable} is empty or not set.")
        return value
