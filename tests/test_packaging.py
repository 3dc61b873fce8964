"""What a deployment is made from agrees with the code: pins, image, compose file, environment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands, load_command_class
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PIN = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;]+)( ; .+?)?(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)"
)
PIN_FILES = ["requirements.txt", "requirements-dev.txt", "requirements-local.txt"]
ENV_LINE = re.compile(r"^#?([A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE)
ENV_EXAMPLE = dict(ENV_LINE.findall((ROOT / ".env.example").read_text()))
ONLY_IN_COMPOSE = {"POSTGRES_PASSWORD"}
# What the example cannot show the default of: secrets, and what depends on the place.
WITHOUT_DEFAULT = ONLY_IN_COMPOSE | {
    "SECRET_KEY",
    "ENCRYPTION_KEYS",
    "GATEWAY_KEY_PEPPERS",
    "DATABASE_URL",
    "REDIS_URL",
    "CELERY_BROKER_URL",
    "GATEWAY_DATA_DIR",
    "GATEWAY_STATIC_ROOT",
}


def requirement_lines(file_name: str) -> list[str]:
    text = (ROOT / file_name).read_text().replace("\\\n", " ")
    lines = [re.sub(r" +", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def pinned_versions(file_name: str) -> dict[str, set[str]]:
    versions: dict[str, set[str]] = {}
    for line in requirement_lines(file_name):
        if match := PIN.fullmatch(line):
            versions.setdefault(match["name"], set()).add(match["version"])
    return versions


# --- pins ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_name", PIN_FILES)
def test_every_requirement_is_pinned_and_hashed(file_name: str) -> None:
    lines = requirement_lines(file_name)

    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


@pytest.mark.parametrize("file_name", PIN_FILES)
def test_no_requirement_names_a_host(file_name: str) -> None:
    text = (ROOT / file_name).read_text()

    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host", text)


def test_the_pins_are_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked_for = {
        "requirements.txt": project["dependencies"],
        "requirements-dev.txt": project["dependencies"] + extras["dev"] + extras["prices"],
        "requirements-local.txt": extras["local"],
    }

    for file_name, dependencies in asked_for.items():
        pinned = pinned_versions(file_name)
        for requirement in map(Requirement, dependencies):
            versions = pinned.get(requirement.name, set())
            assert versions, f"{file_name} lacks {requirement.name}: make pins"
            assert all(map(requirement.specifier.contains, versions)), f"{requirement}: make pins"


def test_tests_run_on_the_versions_that_are_deployed() -> None:
    tested = pinned_versions("requirements-dev.txt")

    assert pinned_versions("requirements.txt").items() <= tested.items()


# --- environment ---------------------------------------------------------------------------------------


def test_the_example_lists_every_variable_that_is_read() -> None:
    source = (ROOT / "gateway_site" / "settings.py").read_text()
    read = set(
        re.findall(r"""(?:\benv\.(?!refuse_removed)\w+|_required_secret)\(\s*["']([A-Z0-9_]+)["']""", source)
    )

    assert len(read) > 20
    assert set(ENV_EXAMPLE) - ONLY_IN_COMPOSE == read


def test_the_example_shows_the_defaults(tmp_path: Path) -> None:
    given = {
        "DATABASE_URL": "postgres://gateway@localhost/gateway",
        "SECRET_KEY": "s",
        "ENCRYPTION_KEYS": "e",
        "GATEWAY_KEY_PEPPERS": "p",
        "GATEWAY_DATA_DIR": str(tmp_path),
    }
    shown = {name: value for name, value in ENV_EXAMPLE.items() if name not in WITHOUT_DEFAULT}

    assert settings_under({**given, **shown}) == settings_under(given)


def settings_under(environment: dict[str, str]) -> Any:
    # LOGGING and UNFOLD hold objects, which are never equal. The first follows from LOG_LEVEL, the second
    # from nothing that is asked of the environment.
    code = (
        "import json, gateway_site.settings as s; "
        "told = {n: v for n, v in vars(s).items() if n.isupper() and n not in ('LOGGING', 'UNFOLD')}; "
        "print(json.dumps(told, default=str))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE
    ).stdout
    return json.loads(printed)


# --- image and compose file ----------------------------------------------------------------------------


def test_the_image_holds_the_code_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    apps = {name for name in settings.INSTALLED_APPS if (ROOT / name).is_dir()}

    assert "*" in lines
    assert kept == apps | {"manage.py", "templates", "requirements.txt"}


def test_the_image_starts_a_command_that_exists() -> None:
    command = re.search(r"^CMD (\[.+\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert command
    python, manage, name, *arguments = json.loads(command[1])

    assert (python, manage) == ("python", "manage.py")
    parser = load_command_class(get_commands()[name], name).create_parser(manage, name)
    options = parser.parse_args(arguments)
    assert (options.host, options.port) == ("0.0.0.0", 8000)  # noqa: S104


def test_services_wait_for_what_can_tell_that_it_is_ready() -> None:
    for service in SERVICES.values():
        for name, wait in service.get("depends_on", {}).items():
            other = SERVICES[name]
            if wait["condition"] == "service_healthy":
                assert other["healthcheck"]["test"]
            else:
                assert wait["condition"] == "service_completed_successfully"
                assert other["restart"] == "no"


def test_one_image_serves_in_every_role() -> None:
    ours = {name for name, service in SERVICES.items() if service["image"] == "inference-gateway"}

    assert ours == {"migrate", "web", "worker", "beat"}
    for name in ours - {"migrate"}:
        assert "migrate" in SERVICES[name]["depends_on"]
    # The image's own health check asks the web server, which runs in none of these.
    for name in ours - {"web"}:
        assert SERVICES[name]["healthcheck"]


def test_only_the_web_service_can_be_reached_and_only_from_its_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published == {"web": ["127.0.0.1:8000:8000"]}


def test_the_compose_file_sets_only_variables_that_are_read_and_holds_no_secret() -> None:
    for service in SERVICES.values():
        environment = service.get("environment", {})
        if service["image"] == "inference-gateway":
            assert set(environment) <= set(ENV_EXAMPLE)
        for name, value in environment.items():
            if "PASSWORD" in name or name == "DATABASE_URL":
                assert "${POSTGRES_PASSWORD:?" in value
