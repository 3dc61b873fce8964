"""A wrong value stops the start, with the variable's name; in production no secret is invented."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

from gateway_site.quickstart.embedded_secrets import load_or_create_secrets

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {
    "DATABASE_URL": "postgres://gateway:hunter2@127.0.0.1:1/gateway",
    "SECRET_KEY": "s" * 50,
    "ENCRYPTION_KEYS": "Zm9vYmFyYmF6Zm9vYmFyYmF6Zm9vYmFyYmF6Zm9vYmE=",
    "GATEWAY_KEY_PEPPERS": "p" * 40,
}


def settings_with(tmp_path: Path, expression: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a new process prints for `expression` over its settings."""
    program = f"from django.conf import settings as s; print({expression})"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={
            "PATH": os.environ["PATH"],
            "DJANGO_SETTINGS_MODULE": "gateway_site.settings",
            "GATEWAY_DATA_DIR": str(tmp_path / "data"),
            **environment,
        },
    )


@pytest.mark.slow
def test_with_nothing_set_everything_is_embedded(tmp_path: Path) -> None:
    first = settings_with(tmp_path, "s.IS_EMBEDDED, s.SECRET_KEY")
    second = settings_with(tmp_path, "s.IS_EMBEDDED, s.SECRET_KEY")

    assert first.stdout.startswith("True "), first.stderr
    assert first.stdout == second.stdout
    secrets = tmp_path / "data" / "secrets.json"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600


def test_processes_that_start_at_once_agree_on_the_secrets(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: json.dumps(load_or_create_secrets(tmp_path / "d")), range(64)))

    assert len(set(made)) == 1
    assert os.listdir(tmp_path / "d") == ["secrets.json"]


@pytest.mark.slow
def test_production_is_taken_from_the_environment(tmp_path: Path) -> None:
    told = settings_with(tmp_path, "s.IS_EMBEDDED, s.DATABASES['default']['NAME'], s.DEBUG", **PRODUCTION)

    assert told.stdout.strip() == "False gateway False", told.stderr


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["SECRET_KEY", "ENCRYPTION_KEYS", "GATEWAY_KEY_PEPPERS"])
def test_a_missing_secret_stops_production(tmp_path: Path, missing: str) -> None:
    told = settings_with(tmp_path, "s.DEBUG", **{**PRODUCTION, missing: ""})

    assert told.returncode != 0
    assert f"{missing} (or {missing}_FILE) must be set" in told.stderr


@pytest.mark.slow
def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    environment = {**PRODUCTION, "SECRET_KEY": "", "SECRET_KEY_FILE": str(tmp_path / "key")}

    assert settings_with(tmp_path, "s.SECRET_KEY", **environment).stdout.strip() == "from a file"
    both = settings_with(tmp_path, "s.SECRET_KEY", **{**environment, "SECRET_KEY": "x"})
    assert "SECRET_KEY or SECRET_KEY_FILE, not both" in both.stderr
    gone = settings_with(tmp_path, "s.SECRET_KEY", **{**environment, "SECRET_KEY_FILE": "/nowhere"})
    assert "SECRET_KEY_FILE cannot be read" in gone.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GATEWAY_MAX_BODY_BYTES", "lots"),
        ("GATEWAY_MAX_BODY_BYTES", "10"),
        ("DEBUG", "maybe"),
        ("LOG_LEVEL", "LOUD"),
        ("GATEWAY_TRUSTED_PROXIES", "-1"),
        ("GATEWAY_UNKNOWN_MINUTES", "0"),
        ("DATABASE_URL", "mysql://u:hunter2@h/d"),
        ("DATABASE_URL", "hunter2"),
    ],
)
def test_a_wrong_value_is_named_and_a_password_is_not(tmp_path: Path, name: str, value: str) -> None:
    told = settings_with(tmp_path, "s.DEBUG", **{**PRODUCTION, name: value})

    assert told.returncode != 0
    assert f"ImproperlyConfigured: {name} must" in told.stderr
    assert "hunter2" not in told.stderr


@pytest.mark.slow
def test_a_variable_that_was_replaced_stops_the_start_and_names_the_new_one(tmp_path: Path) -> None:
    old = settings_with(tmp_path, "s.DEBUG", GATEWAY_UNKNOWN_HOURS="24")
    new = settings_with(tmp_path, "s.GATEWAY_UNKNOWN_MINUTES", GATEWAY_UNKNOWN_MINUTES="30")

    assert old.returncode != 0
    assert "GATEWAY_UNKNOWN_HOURS is not read any more. Set GATEWAY_UNKNOWN_MINUTES" in old.stderr
    assert new.stdout.strip() == "30", new.stderr


@pytest.mark.parametrize(
    ("changes", "id"),
    [
        ({"ENCRYPTION_KEYS": ["nonsense"]}, "gateway.E001"),
        ({"GATEWAY_KEY_PEPPERS": ["short"]}, "gateway.E002"),
        ({"IS_EMBEDDED": False, "DEBUG": True}, "gateway.W001"),
        ({"IS_EMBEDDED": False, "REDIS_URL": ""}, "gateway.W002"),
    ],
)
def test_a_configuration_that_will_hurt_is_found_by_check(
    settings: Any, changes: dict[str, Any], id: str
) -> None:
    for name, value in changes.items():
        setattr(settings, name, value)

    assert id in [message.id for message in run_checks()]
