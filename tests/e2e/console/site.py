"""The console in service that browser tests share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser

from tests.e2e.console.console_data import ConsoleData
from tests.e2e.console.driver import Console, new_console
from tests.harness.live_server import LiveServer


@dataclass(frozen=True)
class Site:
    """A running console, what is in it, and a browser."""

    data: ConsoleData
    server: LiveServer
    browser: Browser

    def window(self, axe: Path | None = None) -> Console:
        return new_console(self.browser, self.server.address, axe)
