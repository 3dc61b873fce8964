"""The served document against the served answers: whatever is sent, the answer is one that it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from organization.models import Project
from tests.conftest import make_admin_key
from tests.live import live_server

pytestmark = [pytest.mark.one_database, pytest.mark.django_db(transaction=True)]

# The short form. For the long one: SCHEMA_FUZZ_EXAMPLES=1000 python -m pytest tests/e2e/test_schema_fuzz.py
# The short form asks the same every time; what is new is found by the long one.
SEED = [] if "SCHEMA_FUZZ_EXAMPLES" in os.environ else ["--seed", "20261115"]
EXAMPLES = os.environ.get("SCHEMA_FUZZ_EXAMPLES", "12")


def test_no_answer_is_one_that_the_document_does_not_promise(
    process_environment: dict[str, str], project: Project, tmp_path: Path
) -> None:
    caller = make_admin_key(project.organization)
    victim = make_admin_key(project.organization)
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(
        f'[parameters]\nproject_id = "{project.pk}"\napi_key_id = "{victim.key.pk}"\n'
        "[generation]\nallow-x00 = true\n"
        # No schema can tell a cursor that we signed from one that somebody made up.
        '[[operations]]\ninclude-operation-id = "getCosts"\n'
        "checks.positive_data_acceptance.expected-statuses = [200, 400, 404]\n"
    )
    unlimited = {
        "GATEWAY_ADMIN_REQUESTS_PER_MINUTE": "1000000",
        "GATEWAY_FAILED_LOGINS_PER_MINUTE": "1000000",
    }
    with live_server(process_environment, settings=unlimited) as running:
        program = Path(sys.executable).with_name("schemathesis")
        command = [str(program), "--config-file", str(configuration), "run"]
        command += [f"{running.address}/openapi.json", "--header", f"Authorization: Bearer {caller.value}"]
        command += ["--include-path-regex", "^/(v1/organization/|healthz|readyz)"]
        command += ["--checks", "all", "--max-examples", EXAMPLES, "--no-color", "--warnings", "off"]
        command += SEED
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert run.returncode == 0, run.stdout + run.stderr
    assert "Tested: 12" in run.stdout
