"""An operator looks around the console in a real browser: nothing is broken, nothing comes from outside."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.admin import site
from django.contrib.auth import get_user_model
from django.urls import reverse
from playwright.sync_api import Page, sync_playwright

from organization.models import Project
from tests.conftest import make_admin_key, make_project_key
from tests.live import ROOT, LiveServer, live_server

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.one_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH"),
]
PASSWORD = "correct horse battery"
SIZES = [(1440, 900), (390, 844)]


class Watched:
    """A page, with every host it asked and every error it told."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.hosts: set[str] = set()
        self.errors: list[str] = []
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on(
            "console", lambda message: self.errors.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))


def test_every_page_opens_wide_and_narrow(process_environment: dict[str, str], project: Project) -> None:
    make_project_key(project)
    make_admin_key(project.organization)
    get_user_model().objects.create_superuser("ada", password=PASSWORD)
    pages = [reverse("admin:index"), "/docs/"]
    pages += [
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in site._registry
    ]
    # The settings that the server has, and so its way of keeping passwords: tests have a quicker one.
    environment = {**process_environment, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    collect = [sys.executable, "manage.py", "collectstatic", "--no-input", "-v0"]
    subprocess.run(collect, cwd=ROOT, env=environment, check=True)

    with live_server(environment, settings_module="tests.settings") as running:
        watched = look_around(running, pages)

    assert watched.hosts - {""} == {f"127.0.0.1:{running.port}"}
    assert watched.errors == []


def look_around(running: LiveServer, pages: list[str]) -> Watched:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        watched = Watched(browser.new_page())
        page = watched.page
        page.goto(f"{running.address}/admin/")
        page.fill("#id_username", "ada")
        page.fill("#id_password", PASSWORD)
        page.click("button[type=submit]")
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            for path in pages:
                answer: Any = page.goto(running.address + path)
                assert answer.status == 200, path
                assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), path
        browser.close()
    return watched
