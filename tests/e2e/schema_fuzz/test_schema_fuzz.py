"""
The served document against the served answers: whatever is sent, the answer is one that it promises.

The short form asks the same every time; what is new is found by the long one:

    SCHEMA_FUZZ_EXAMPLES=1000 python -m pytest tests/e2e/schema_fuzz/test_schema_fuzz.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inference.dialects.chat import dialect
from inference.dialects.responses import dialect as responses
from policies.services import create_policy
from tests.factories import SOMEONE, make_admin_key
from tests.harness.documented_routes import document
from tests.harness.live_server import ROOT, LiveServer, live_server
from tests.inference.customer import ApiCustomer

pytestmark = pytest.mark.one_database

EXAMPLES = os.environ.get("SCHEMA_FUZZ_EXAMPLES", "")
SEED = [] if EXAMPLES else ["--seed", "20261115"]
ADMINISTRATION = "^/(v1/organization/|healthz|readyz)"
INFERENCE = "^/v1/(chat/|responses|messages/|models)"
STREAMS = f"^({dialect.PATH}|{responses.PATH})$"
SSE = "text/event-stream"
ALWAYS_STREAMED = """
[[operations]]
include-path-regex = "."
parameters = { "body.stream" = true, "body.model" = "echo" }
"""
UNLIMITED = {
    "GATEWAY_REQUESTS_PER_MINUTE": "0",
    "GATEWAY_CONCURRENCY": "0",
    "GATEWAY_ADMIN_REQUESTS_PER_MINUTE": "1000000",
    "GATEWAY_FAILED_LOGINS_PER_MINUTE": "1000000",
}


# A schema cannot say that two fields exclude each other, nor that 11.0 is not the integer 11.
NOT_ALWAYS_TAKEN = ["--exclude-checks", "positive_data_acceptance"]
# The phase of boundary values has a thousand requests for these; the short form is content with random ones.
RANDOM_ALONE = [] if EXAMPLES else ["--phases", "fuzzing"]

# (operation, status, media type) of every answer.
Seen = set[tuple[str, int, str]]


@dataclass(frozen=True)
class Fuzz:
    """A server, what there is in it, and schemathesis."""

    server: LiveServer
    configuration: str
    customer_key: str
    admin_key: str
    folder: Path

    def run(self, key: str, paths: str, examples: int, options: list[str], **variables: str) -> Seen:
        """Ask for these paths with this key. Whatever schemathesis finds is an error."""
        configuration, seen = self.folder / "schemathesis.toml", self.folder / "seen.jsonl"
        configuration.write_text(self.configuration + variables.pop("more", ""))
        seen.write_text("")
        program = Path(sys.executable).with_name("schemathesis")
        command = [str(program), "--config-file", str(configuration), "run"]
        command += [f"{self.server.address}/openapi.json", "--header", f"Authorization: Bearer {key}"]
        command += ["--include-path-regex", paths, "--checks", "all", *options]
        command += ["--max-examples", EXAMPLES or str(examples), "--no-color", "--warnings", "off", *SEED]
        hooks = {"SCHEMATHESIS_HOOKS": "tests.e2e.schema_fuzz.checks", "PYTHONPATH": str(ROOT)}
        environment = {**os.environ, **hooks, "FUZZ_SEEN": str(seen), **variables}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
        return {tuple(json.loads(line)) for line in seen.read_text().splitlines()}


@pytest.fixture
def fuzz(customer: ApiCustomer, process_environment: dict[str, str], tmp_path: Path) -> Iterator[Fuzz]:
    customer.simulate("echo")
    organization = customer.project.organization
    policy = create_policy(organization=organization, actor=SOMEONE, name="Policy", rule="Is it?")
    # Rows that are there, or nothing but 404 would be seen; and 501 is an answer like others.
    configuration = f"""
[parameters]
project_id = "{customer.project.pk}"
api_key_id = "{make_admin_key(organization).key.pk}"
policy_id = "{policy.pk}"
model = "echo"
"body.model" = "echo"
[generation]
allow-x00 = true
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501"]
# No schema can tell a cursor that we signed from one that somebody made up.
[[operations]]
include-operation-id = "getCosts"
checks.positive_data_acceptance.expected-statuses = [200, 400, 404]
"""
    with live_server(process_environment, settings=UNLIMITED) as running:
        yield Fuzz(running, configuration, customer.value, make_admin_key(organization).value, tmp_path)


def operations(paths: str) -> set[str]:
    """Those of the document whose path is like this."""
    return {
        f"{method.upper()} {path}"
        for path, methods in document()["paths"].items()
        for method in methods
        if re.search(paths, path)
    }


def tried(seen: Seen) -> set[str]:
    return {operation for operation, _, _ in seen}


def test_every_operation_of_the_document_is_in_one_of_the_runs() -> None:
    assert operations(ADMINISTRATION) | operations(INFERENCE) == operations("")


def test_administration_answers_as_documented(fuzz: Fuzz) -> None:
    seen = fuzz.run(fuzz.admin_key, ADMINISTRATION, 12, [])

    assert tried(seen) == operations(ADMINISTRATION)


def test_inference_answers_as_documented(fuzz: Fuzz) -> None:
    seen = fuzz.run(fuzz.customer_key, INFERENCE, 10, [*NOT_ALWAYS_TAKEN, *RANDOM_ALONE])
    streamed = fuzz.run(
        fuzz.customer_key, STREAMS, 8, [*NOT_ALWAYS_TAKEN, *RANDOM_ALONE], more=ALWAYS_STREAMED
    )

    assert tried(seen) == operations(INFERENCE)
    assert {operation for operation, status, _ in seen if status == 200} == operations(INFERENCE)
    assert {operation for operation, _, kind in streamed if kind == SSE} == operations(STREAMS)


@pytest.mark.skipif(not EXAMPLES, reason="the long form; the permission matrix has the short one")
@pytest.mark.parametrize("key", ["garbage", "gwk_" + "x" * 49])
def test_nothing_is_done_for_a_stranger(fuzz: Fuzz, key: str) -> None:
    # Its own credentials would be good ones, which it then wonders about.
    options = ["--exclude-checks", "positive_data_acceptance,negative_data_rejection,missing_required_header"]

    seen = fuzz.run(key, "", 3, options, FUZZ_WITHOUT_KEY="1")

    assert tried(seen) == operations("")
