"""A script that somebody smuggled into a page does not run: the page's Content-Security-Policy forbids it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route

from tests.e2e.console.driver import Console
from tests.e2e.console.site import Site

pytestmark = pytest.mark.one_database

POLICY = "content-security-policy"
SMUGGLED = {
    "inline script": ("<script>window.pwned = 1</script>", "script-src-elem inline"),
    "event handler": ("<img src='data:,' onerror='window.pwned = 1'>", "script-src-attr inline"),
    "script of another host": ("<script src='http://127.0.0.1:9/x.js'></script>", "script-src-elem http"),
    "script in an address": (
        "<script src='data:text/javascript,window.pwned=1'></script>",
        "script-src-elem data",
    ),
    "frame": ("<iframe srcdoc='<script>parent.pwned = 1</script>'></iframe>", "script-src-elem inline"),
    "image that tells": ("<img src='http://127.0.0.1:9/?secret'>", "img-src http"),
    "base": ("<base href='http://127.0.0.1:9/'>", "base-uri http"),
    "plugin": ("<object data='http://127.0.0.1:9/x'></object>", "object-src http"),
}
PAGES = {
    "login": "/admin/login/",
    "overview": "/admin/",
    "playground": "/admin/playground/",
    "live tail": "/admin/tail/",
    "list": "/admin/organization/projectkey/",
    "missing": "/admin/nowhere/",
    "documentation": "/docs/",
}


@pytest.mark.parametrize("smuggled", SMUGGLED)
def test_what_was_smuggled_into_a_page_does_not_run(site: Site, console: Console, smuggled: str) -> None:
    content, complaint = SMUGGLED[smuggled]
    for name, path in PAGES.items():
        if name == "documentation" or smuggled == "inline script":
            said = open_with(site, console, path, content)
            assert any(complaint in each for each in said), (name, said)


def test_without_the_policy_it_would_have_run(site: Site, console: Console) -> None:
    """The control: the same page and the same script, and nobody who says that it may not."""
    page = console.page.context.new_page()
    smuggle(page, f"{site.server.address}/docs/", SMUGGLED["inline script"][0], keeps_policy=False)

    page.goto(f"{site.server.address}/docs/")

    assert page.evaluate("window.pwned") == 1
    page.close()


def test_no_page_that_refuses_breaks_its_own_policy(site: Site) -> None:
    window = site.window()
    window.log_in("read-only")
    window.check("logged in")
    for path in (PAGES["missing"], "/admin/playground/", "/admin/auth/user/"):
        answer = window.page.goto(site.server.address + path)
        assert answer is not None
        assert answer.status in (403, 404)
        window.settle()
        assert [each for each in window.trouble if "policy" in each.lower()] == []
    window.page.context.close()


def open_with(site: Site, console: Console, path: str, content: str) -> list[str]:
    """What the browser says against the policy when the page comes with this in it, which never runs."""
    page = console.page.context.new_page()
    said = Console(page, site.server.address).trouble
    smuggle(page, site.server.address + path, content, keeps_policy=True)
    page.goto(site.server.address + path)
    page.wait_for_load_state("load")
    assert page.evaluate("window.pwned") is None, path
    page.close()
    return [each for each in said if "against the policy" in each]


def smuggle(page: Page, address: str, content: str, *, keeps_policy: bool) -> None:
    def answer(route: Route) -> None:
        real = route.fetch()
        headers = {name: value for name, value in real.headers.items() if keeps_policy or name != POLICY}
        body = real.text().replace("</head>", f"</head>{content}" if "<base" not in content else content, 1)
        route.fulfill(response=real, headers=headers, body=body)

    page.route(address, answer)
