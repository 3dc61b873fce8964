"""A real browser on the console, and someone who watches everything it asks, says and is made to do."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, Response, sync_playwright

from tests.e2e.console.console_data import OPERATOR, PASSWORD

CHROMIUM = shutil.which("chromium")
WIDE, NARROW = (1440, 900), (390, 844)
LIGHT, DARK = "light", "dark"
# Nobody watches: what is drawn is asked of the layout, not of pixels.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-gpu-rasterization", "--disable-software-rasterizer"]
CHANGES = ("POST", "PUT", "PATCH", "DELETE")
# What shuts somebody out. The rest of what axe says is advice.
GRAVE = ("serious", "critical")
# Motion is no part of a look, and a button that is still fading in has no contrast yet.
STILL = "*, *::before, *::after { transition: none !important; animation: none !important }"
# Whatever the page's Content-Security-Policy stopped, also where the browser itself says nothing of it.
REPORT_VIOLATIONS = """document.addEventListener('securitypolicyviolation', event => console.error(
    `against the policy: ${event.effectiveDirective} ${event.blockedURI} ${event.sample}`))"""
OVERFLOWS = """() => Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)
    - document.documentElement.clientWidth"""
# Of a long table the first rows are looked at: the others are drawn by the same lines. No rule that is asked
# for looks at style sheets, which take long to load.
GRAVE_VIOLATIONS = """async ([rules, grave, within]) => {
    const all = {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21aa']};
    const wanted = rules ? {type: 'rule', values: rules} : all;
    const rest = document.querySelectorAll('tbody:nth-of-type(n+6), tbody > tr:nth-child(n+6)');
    rest.forEach(each => each.remove());
    const found = await axe.run(document.querySelector(within) || document,
        {resultTypes: ['violations'], elementRef: false, runOnly: wanted, preload: {assets: ['media']}});
    return found.violations.filter(each => grave.includes(each.impact)).map(each =>
        `${each.id} (${each.impact}): ` + each.nodes.slice(0, 4).map(node =>
            node.target.join(' ') + ' ' + node.html.slice(0, 160) + ' ['
            + (node.any[0] || node.all[0] || node.none[0]).message.slice(0, 160) + ']').join('\\n    '));
}"""


class Console:
    """One window, logged in or not. `trouble` is whatever should never happen."""

    def __init__(self, page: Page, address: str, axe: str = "") -> None:
        self.page, self.address = page, address
        self.trouble: list[str] = []
        self._host = urlsplit(address).netloc
        self._axe = axe
        page.on("request", self._asked)
        page.on("websocket", lambda socket: self._require_our_host(socket.url))
        page.on("response", self._answered)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.trouble.append(f"an error in a script: {error}"))
        page.on("dialog", self._interrupted)
        page.add_init_script(REPORT_VIOLATIONS)

    # --- what is watched ---

    def _asked(self, request: Request) -> None:
        self._require_our_host(request.url)
        path = urlsplit(request.url).path
        if request.method in CHANGES and path.startswith("/admin/"):
            sent = (request.post_data_buffer or b"").decode(errors="replace")
            if "csrfmiddlewaretoken" not in sent and "x-csrftoken" not in request.headers:
                self.trouble.append(f"{request.method} {path} without a CSRF token")

    def _require_our_host(self, url: str) -> None:
        if (host := urlsplit(url).netloc) not in ("", self._host):
            self.trouble.append(f"{host} was asked: {url}")

    def _answered(self, response: Response) -> None:
        if response.request.is_navigation_request() and not 200 <= response.status < 400:
            self.trouble.append(f"{response.url} answered {response.status}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.trouble.append(f"the browser says: {message.text}")

    def _interrupted(self, dialog: Dialog) -> None:
        self.trouble.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    # --- what a person does ---

    def log_in(self, name: str = OPERATOR, password: str = PASSWORD) -> None:
        self.page.goto(f"{self.address}/admin/login/?next=/admin/")
        self.page.fill("#id_username", name)
        self.page.fill("#id_password", password)
        self.page.click("form button[type=submit]")
        self.settle()

    def open(self, path: str) -> None:
        self.page.goto(self.address + path)
        self.settle()

    def settle(self) -> None:
        """Until the page has taken its final shape."""
        self.page.wait_for_load_state("load")
        self.page.wait_for_function("!document.documentElement.hasAttribute('x-cloak')")
        self.page.add_style_tag(content=STILL)
        self.page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => setTimeout(drawn)))")

    def look(self, theme: str, size: tuple[int, int]) -> None:
        self.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        # The theme asks the medium when a page is opened; one that is open is told.
        self.page.evaluate("dark => document.documentElement.classList.toggle('dark', dark)", theme == DARK)
        self.page.set_viewport_size({"width": size[0], "height": size[1]})

    # --- what must hold ---

    def check(self, where: str) -> None:
        """Nothing happened that should not, and the page fits its window."""
        if self.page.evaluate("window.pwned !== undefined"):
            self.trouble.append("a name ran as a script")
        if (excess := self.page.evaluate(OVERFLOWS)) > 1:
            self.trouble.append(f"the page is {excess} px wider than its window")
        trouble, self.trouble = self.trouble, []
        assert not trouble, f"{where}: " + "\n".join(trouble)

    def check_accessible(self, where: str, rules: list[str] | None = None, within: str = "html") -> None:
        """No grave violation of WCAG A and AA, as far as axe can tell, or of these rules."""
        if not self._axe:
            return
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(self._axe)
        found = self.page.evaluate(GRAVE_VIOLATIONS, [rules, GRAVE, within])
        assert not found, f"{where}:\n" + "\n".join(found)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


def new_console(running: Browser, address: str, axe: Path | None = None, **options: Any) -> Console:
    """A window with cookies of its own."""
    context = running.new_context(viewport={"width": WIDE[0], "height": WIDE[1]}, **options)
    context.set_default_timeout(15_000)
    return Console(context.new_page(), address, axe.read_text() if axe else "")
