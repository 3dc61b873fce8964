"""Production settings pass Django's own deployment check, plain HTTP is not served, and files are private."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {
    "DATABASE_URL": "postgres://gateway:hunter2@127.0.0.1:1/gateway",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "SECRET_KEY": "a-Secret-of-50-characters-and-more-of-many-kinds-0123456789",
    "ENCRYPTION_KEYS": "Zm9vYmFyYmF6Zm9vYmFyYmF6Zm9vYmFyYmF6Zm9vYmE=",
    "GATEWAY_KEY_PEPPERS": "p" * 40,
    "ALLOWED_HOSTS": "gateway.example.com,localhost",
    "GATEWAY_HTTPS": "true",
}


def run(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A new process with these variables and no other, as a careless person would start it."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        umask=0o022,
        env={
            "PATH": os.environ["PATH"],
            "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
            "GATEWAY_DATA_DIR": str(tmp_path / "data"),
            **environment,
        },
    )


def told(tmp_path: Path, program: str, **environment: str) -> Any:
    """What a program prints last, as JSON."""
    ended = run(tmp_path, "-c", program, **environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_deployment_check_has_no_warning(tmp_path: Path) -> None:
    ended = run(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING", **PRODUCTION)

    assert ended.returncode == 0, ended.stderr
    assert "no issues" in ended.stdout + ended.stderr


ASK = """
import json
from tests.harness.client import exchange
PLAIN, SECURE = [("X-Forwarded-Proto", "http")], [("X-Forwarded-Proto", "https")]
asked = {
    "api over http": ("POST", "/v1/chat/completions", PLAIN),
    "organization api over http": ("GET", "/v1/organization/projects", PLAIN),
    "api over https": ("POST", "/v1/chat/completions", SECURE),
    "api from inside": ("POST", "/v1/chat/completions", []),
    "probe": ("GET", "/healthz", []),
    "probe over http": ("GET", "/healthz", PLAIN),
    "console over http": ("GET", "/admin/?a=b", PLAIN),
    "console over https": ("GET", "/admin/login/", SECURE),
}
def ask(method, path, headers):
    answer = exchange(method, path, [("Host", "gateway.example.com"), *headers])
    error = answer.error["message"] if answer.status in (400, 401) else ""
    return [answer.status, answer.headers.get("location", ""), error]
print(json.dumps({name: ask(*each) for name, each in asked.items()}))
"""


@pytest.mark.slow
def test_over_plain_http_people_are_sent_on_and_programs_refused(tmp_path: Path) -> None:
    embedded = {"ALLOWED_HOSTS": "gateway.example.com", "GATEWAY_HTTPS": "true"}

    answers = told(tmp_path, f"import django; django.setup()\n{ASK}", **embedded)

    for name in ("api over http", "organization api over http"):
        assert answers[name][0] == 400
        assert "https://" in answers[name][2]
    assert answers["api over https"][0] == answers["api from inside"][0] == 401
    assert answers["probe"][0] == answers["probe over http"][0] == 200
    assert answers["console over http"][:2] == [301, "https://gateway.example.com/admin/?a=b"]
    assert answers["console over https"][0] == 200


MODES = """
import django, json, os, stat
django.setup()
from django.conf import settings
from django.db import connection
connection.cursor().execute("CREATE TABLE a (b)")
folder = settings.GATEWAY_DATA_DIR
(folder / "made" / "later").mkdir(parents=True, exist_ok=True)
(folder / "made" / "later" / "file").write_text("")
print(json.dumps({
    str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode))
    for path in [folder, *folder.rglob("*")]
}))
"""


@pytest.mark.slow
def test_a_database_in_a_directory_that_all_can_read_is_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)

    modes = told(tmp_path, MODES)

    assert modes.pop(".") == "0o755", "the directory is not ours to change"
    files = {name for name in modes if not (data / name).is_dir()}
    assert {"secrets.json", "gateway.sqlite3", "made/later/file"} <= files
    assert {modes[name] for name in files} == {"0o600"}
    assert {modes[name] for name in modes.keys() - files} == {"0o700"}


@pytest.mark.slow
def test_a_database_that_all_could_read_becomes_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("gateway.sqlite3", "other.sqlite3"):
        (data / name).touch()
        (data / name).chmod(0o644)
    secrets = {name: PRODUCTION[name] for name in ("SECRET_KEY", "ENCRYPTION_KEYS", "GATEWAY_KEY_PEPPERS")}

    modes = told(tmp_path, MODES)
    named = told(tmp_path, MODES, DATABASE_URL=f"sqlite:///{data}/other.sqlite3", **secrets)

    assert modes["gateway.sqlite3"] == named["other.sqlite3"] == "0o600"
    assert {modes[f"gateway.sqlite3{end}"] for end in ("-wal", "-shm")} == {"0o600"}


@pytest.mark.slow
def test_static_files_can_be_read_by_a_web_server(tmp_path: Path) -> None:
    static = tmp_path / "srv" / "static"
    ended = run(tmp_path, "manage.py", "collectstatic", "--no-input", GATEWAY_STATIC_ROOT=str(static))
    assert ended.returncode == 0, ended.stderr

    for path in [static, *static.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path
