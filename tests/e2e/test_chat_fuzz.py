"""What the document says of chat completions against what is answered, whatever is sent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inference.dialects import chat
from tests.inference.chat_cast import Gateway
from tests.live import live_server

pytestmark = pytest.mark.one_database

# The short form. For the long one: SCHEMA_FUZZ_EXAMPLES=1000 python -m pytest tests/e2e/test_chat_fuzz.py
# The short form asks the same every time; what is new is found by the long one.
SEED = [] if "SCHEMA_FUZZ_EXAMPLES" in os.environ else ["--seed", "20261115"]
EXAMPLES = os.environ.get("SCHEMA_FUZZ_EXAMPLES", "30")
UNLIMITED = {
    "GATEWAY_REQUESTS_PER_MINUTE": "0",
    "GATEWAY_CONCURRENCY": "0",
    "GATEWAY_FAILED_LOGINS_PER_MINUTE": "1000000",
}


def test_no_answer_is_one_that_the_document_does_not_promise(
    gateway: Gateway, process_environment: dict[str, str], tmp_path: Path
) -> None:
    gateway.simulate("echo")
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(
        # A model that is there, or nothing but 404 would be seen; and 501 is an answer like others.
        '[parameters]\n"body.model" = "echo"\n[generation]\nallow-x00 = true\n'
        '[checks]\nnot_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501"]\n'
    )
    with live_server(process_environment, settings=UNLIMITED) as running:
        program = Path(sys.executable).with_name("schemathesis")
        command = [str(program), "--config-file", str(configuration), "run"]
        command += [f"{running.address}/openapi.json", "--header", f"Authorization: Bearer {gateway.value}"]
        command += ["--include-path", chat.PATH, "--checks", "all", "--max-examples", EXAMPLES]
        # A schema cannot say that two fields exclude each other, nor that 11.0 is not the integer 11.
        command += ["--exclude-checks", "positive_data_acceptance", "--no-color", "--warnings", "off"]
        command += SEED
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert run.returncode == 0, run.stdout + run.stderr
    assert "Tested: 1" in run.stdout
