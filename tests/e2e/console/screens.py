"""
The long look at the console: every screen, light and dark, wide and narrow, each in a window of its own.

    python -m tests.e2e.console.screens --out DIRECTORY [--only WORDS] [--axe FILE]

writes a picture of each into DIRECTORY, and what is wrong with it, with every rule of axe if it is told
where `axe.min.js` is (the npm package axe-core), to DIRECTORY/trouble.txt. The tests look at the same
screens more quickly.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
from cryptography.fernet import Fernet


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="screens whose names have these words in them")
    parser.add_argument("--axe", type=Path, help="axe.min.js")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        _set_up(data)
        trouble = list(_look(options.out, options.only, options.axe))
    (options.out / "trouble.txt").write_text("\n\n".join(trouble))
    sys.stdout.write("\n\n".join([*trouble, f"{len(trouble)} screens have trouble.\n"]))
    return bool(trouble)


def _set_up(data: str) -> None:
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "GATEWAY_DATA_DIR": data,
        "DATABASE_URL": "",
        "REDIS_URL": "",
        "CELERY_BROKER_URL": "",
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "GATEWAY_KEY_PEPPERS": secrets.token_urlsafe(32),
    }
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)


def _look(out: Path, only: str, axe: Path | None) -> Iterator[str]:
    from tests.e2e.console.console_data import create_console_data, make_requests
    from tests.e2e.console.driver import DARK, LIGHT, NARROW, WIDE, browser, new_console
    from tests.e2e.console.pages import LOGIN, every_screen
    from tests.harness.live_server import live_server

    data = create_console_data()
    with live_server(dict(os.environ), settings_module="tests.settings") as running:
        make_requests(data, running.address)
        screens = [(each.name, each.path()) for each in every_screen() if only in each.name]
        with browser() as opened:
            for theme in (LIGHT, DARK):
                for size in (WIDE, NARROW):
                    console = new_console(opened, running.address, axe)
                    console.look(theme, size)
                    yield from _picture(console, out, (LOGIN.name, "/admin/login/"))
                    console.log_in()
                    for screen in screens:
                        yield from _picture(console, out, screen)
                    console.page.context.close()


def _picture(console: Any, out: Path, screen: tuple[str, str]) -> Iterator[str]:
    name, path = screen
    size = console.page.viewport_size
    theme = console.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'")
    where = f"{name.replace(', ', '-').replace(' ', '-')}_{theme}_{size['width']}"
    console.open(path)
    console.page.screenshot(path=out / f"{where}.png", full_page=True)
    for check in (console.check, console.check_accessible):
        try:
            check(where)
        except AssertionError as error:
            yield str(error)


if __name__ == "__main__":
    sys.exit(main())
