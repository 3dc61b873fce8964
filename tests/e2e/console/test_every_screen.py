"""An operator looks at every screen of the console in a real browser: light and dark, wide and narrow."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.console.driver import DARK, LIGHT, NARROW, WIDE, Console
from tests.e2e.console.pages import LOGIN, Screen, every_screen
from tests.e2e.console.site import Site

pytestmark = pytest.mark.one_database

# What Swagger UI draws is not ours: it has links inside of the buttons that open an operation. The page is.
DRAWN_BY_OTHERS = {"documentation": ["html-has-lang", "document-title", "meta-viewport"]}
# The sidebar and the header are looked at here, and elsewhere only what differs.
WITH_THE_FRAME = {"overview", "login", "documentation"}
# One of each kind of page: the others are drawn in the same colours.
LOOKED_AT_IN_THE_DARK = {
    *WITH_THE_FRAME,
    "costs",
    "playground",
    "live tail",
    "nothing found",
    "policies, try",
    "policies, one",
    "requests, list",
    "requests, one",
    "projects, list",
    "backends, new",
    "API keys, list",
    "API keys, one",
    "audit trail, one",
    "limits, one",
    "models, one",
}
LISTS_WITH_FILTERS_IN_THE_DARK = {"requests, list", "API keys, list"}
# What the theme writes before the first cell of a row, which it takes for a box to tick.
LABEL = """() => {
    const cell = document.querySelector('#result_list tbody tr > :first-child:not(.action-checkbox)');
    return cell ? getComputedStyle(cell, '::before').content : 'none';
}"""


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


def test_the_screens_checked_in_dark_mode_exist() -> None:
    assert {screen.name for screen in (LOGIN, *every_screen())} >= LOOKED_AT_IN_THE_DARK


def look_at(console: Console, path: str, name: str) -> None:
    """One load, three looks: colours follow the medium and the layout follows the window, not each other."""
    ours = DRAWN_BY_OTHERS.get(name)
    within = "html" if name in WITH_THE_FRAME else "#main"
    console.look(LIGHT, WIDE)
    console.open(path)
    console.check(f"{name}, wide")
    console.look(LIGHT, NARROW)
    console.check(f"{name}, narrow")
    if name.endswith(", list"):
        assert console.page.evaluate(LABEL) == "none", f"{name}: a label for a box that is not there"
    if name in LOOKED_AT_IN_THE_DARK:
        # Nothing but the colours is different.
        console.look(DARK, WIDE)
        console.check(f"{name}, dark")
        console.check_accessible(f"{name}, dark", ours or ["color-contrast"], within)
    console.look(LIGHT, WIDE)
    console.check_accessible(f"{name}, light", ours, within)
    if console.page.locator("#changelist-filter").count():
        look_at_filters(console, name)


def look_at_filters(console: Console, name: str) -> None:
    """Opened without a mouse."""
    button = console.page.get_by_role("button", name="Filters")
    button.focus()
    button.press("Enter")
    expect(console.page.locator("#filter-form")).to_be_visible()
    console.look(LIGHT, NARROW)
    console.check(f"{name}, filters")
    console.check_accessible(f"{name}, filters", within="#changelist-filter")
    if name in LISTS_WITH_FILTERS_IN_THE_DARK:
        console.look(DARK, NARROW)
        console.check_accessible(
            f"{name}, filters in the dark", ["color-contrast"], within="#changelist-filter"
        )
