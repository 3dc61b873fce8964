"""An operator looks at every screen of the console in a real browser: light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Site
from tests.e2e.console_driver import DARK, LIGHT, NARROW, WIDE, Console
from tests.e2e.console_pages import LOGIN, Screen, every_screen

pytestmark = pytest.mark.one_database

# What Swagger UI draws is not ours: it has links inside of the buttons that open an operation. The page is.
DRAWN_BY_OTHERS = {"documentation": ["html-has-lang", "document-title", "meta-viewport"]}


@pytest.fixture(scope="module")
def axe(node_home: Path) -> Path:
    return node_home / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def console(site: Site, axe: Path) -> Iterator[Console]:
    """Logged in once: a test is a look at one screen."""
    window = site.window(axe)
    window.log_in()
    window.check("overview")
    yield window
    window.page.context.close()


@pytest.mark.parametrize("screen", every_screen(), ids=lambda screen: screen.name)
def test_a_screen_can_be_used_by_everyone(console: Console, screen: Screen) -> None:
    look_at(console, screen.path(), screen.name)


def test_a_visitor_sees_how_to_get_in_and_out(site: Site, axe: Path) -> None:
    window = site.window(axe)
    look_at(window, LOGIN.path(), "login")
    window.log_in(password="wrong")
    assert window.page.get_by_text("Please enter the correct username and password").is_visible()
    window.log_in()
    window.page.evaluate("document.querySelector('form[action=\"/admin/logout/\"]').submit()")
    window.settle()
    window.check("logged out")
    window.open("/admin/")
    assert "/admin/login/" in window.page.url
    window.page.context.close()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("<img src='http://127.0.0.1:9/pixel.png'>", "was asked"),
        ("<script>throw new Error('broken')</script>", "an error in a script"),
        ("<script>window.pwned = 1</script>", "a name ran as a script"),
        ("<script>alert('hello')</script>", "a dialog"),
        ("<p style='width: 2000px'>wide</p>", "px wider than its window"),
        ("<script>fetch('/admin/', {method: 'POST'})</script>", "without a CSRF token"),
        ("<p style='color: #999; background: #aaa'>faint</p>", "color-contrast"),
    ],
)
def test_whoever_watches_sees_it(site: Site, axe: Path, content: str, complaint: str) -> None:
    """A guard that never cried out proves nothing."""
    window = site.window(axe)
    window.page.route("**/bad/", lambda route: route.fulfill(body=content, content_type="text/html"))
    window.open("/bad/")

    with pytest.raises(AssertionError, match=complaint):
        check_everything(window)

    window.page.context.close()


def check_everything(window: Console) -> None:
    window.check("a bad page")
    window.check_accessible("a bad page")


def look_at(console: Console, path: str, name: str) -> None:
    """One load, four looks: colours follow the medium and the layout follows the window at once."""
    ours = DRAWN_BY_OTHERS.get(name)
    console.look(LIGHT, WIDE)
    console.open(path)
    console.check(f"{name}, wide")
    console.check_accessible(f"{name}, light", ours)
    console.look(DARK, WIDE)
    # Nothing but the colours is different.
    console.check_accessible(f"{name}, dark", ours or ["color-contrast"])
    console.look(DARK, NARROW)
    console.check(f"{name}, narrow")
    if console.page.locator("#changelist-filter").count():
        look_at_filters(console, name)


def look_at_filters(console: Console, name: str) -> None:
    """Opened without a mouse."""
    button = console.page.get_by_role("button", name="Filters")
    button.focus()
    button.press("Enter")
    expect(console.page.locator("#filter-form")).to_be_visible()
    console.check(f"{name}, filters")
    console.check_accessible(f"{name}, filters in the dark", within="#changelist-filter")
    console.look(LIGHT, NARROW)
    console.check_accessible(f"{name}, filters", ["color-contrast"], within="#changelist-filter")
