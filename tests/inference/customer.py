"""A customer of the gateway with credit, the models it can ask for, and what became of its requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from billing import services
from billing.ledger.ledger import close_ledger
from billing.models import Account, Reservation
from billing.money import parse_usd
from gateway_site.asgi import application
from inference.activity.writer import writer
from inference.backends import registry
from inference.dialects.chat import dialect
from inference.models import Activity, CatalogModel
from organization.models import Project, ProjectKey
from policies.enforcement.publication_cache import publications
from policies.verdicts.writer import writer as verdicts
from tests.factories import SOMEONE, make_project_key
from tests.harness.client import Answer, ApiClient, exchange
from tests.harness.ledger_checks import assert_books_balance
from tests.inference.catalog.factories import deploy, make_backend, make_model

CREDIT = "100"
COLUMNS = {"tokenizer": "o200k_base", "context_length": 100_000, "max_output_length": 10_000}
HELLO = "hello there my friend"


async def closing_application(scope: Any, receive: Any, send: Any) -> None:
    """Serve as the application does, for a loop that ends with the request: nothing stays open behind it."""
    try:
        await application(scope, receive, send)
    finally:
        await registry.client.close()


@dataclass(frozen=True)
class ApiCustomer:
    """A customer's application as it meets the gateway: its project, its key, its requests."""

    project: Project
    key: ProjectKey
    value: str

    @classmethod
    def of(cls, project: Project, credit: str = CREDIT) -> ApiCustomer:
        made = make_project_key(project)
        if credit != "0":
            services.grant_credit(
                organization=project.organization, amount_nanousd=parse_usd(credit), actor=SOMEONE
            )
        return cls(project, made.key, made.value)

    # --- the models it can ask for ---

    def simulate(self, name: str, **columns: Any) -> CatalogModel:
        """The simulator's model of this name, under the same name."""
        model = make_model(name, **{**COLUMNS, **columns})
        deploy(model, make_backend())
        return model

    def serve(self, name: str, url: str, **columns: Any) -> CatalogModel:
        """A model of the server at `url`, under the same name."""
        model = make_model(name, **{**COLUMNS, **columns})
        deploy(model, make_backend(f"server at {url}", "openai", base_url=f"{url}/v1"))
        return model

    # --- its requests ---

    def ask(
        self, model: str, content: str = HELLO, *, headers: dict[str, str] | None = None, **fields: Any
    ) -> Answer:
        return self.post(question(model, content, **fields), headers=headers)

    def post(self, body: Any, *, headers: dict[str, str] | None = None, key: str | None = None) -> Answer:
        sent = {"Authorization": f"Bearer {key or self.value}", "Content-Type": "application/json"}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent |= {"Content-Length": str(len(content)), **(headers or {})}
        return exchange("POST", dialect.PATH, list(sent.items()), [content], application=closing_application)

    @property
    def api(self) -> ApiClient:
        return ApiClient(self.value)

    # --- what became of it ---

    @property
    def account(self) -> Account:
        return Account.objects.get(pk=self.project.organization_id)

    def reservation(self) -> Reservation:
        """The only reservation there is."""
        return Reservation.objects.get()

    def activity(self) -> Activity:
        writer.flush()
        return Activity.objects.get()


@contextmanager
def customer_of(project: Project, credit: str = CREDIT) -> Iterator[ApiCustomer]:
    """The project's application, until all that it noted is written. The books balance."""
    yield ApiCustomer.of(project, credit)
    writer.close(5)
    verdicts.close(5)
    publications.close()
    assert close_ledger(5) == 0
    assert_books_balance()


def question(model: str, content: str = HELLO, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **fields}


def records(body: bytes) -> list[Any]:
    """The `data` of every record of a stream, `[DONE]` as it is."""
    assert body.endswith(b"\n\n")
    found = []
    for record in body[:-2].split(b"\n\n"):
        if not record.startswith(b":"):
            assert record.startswith(b"data: "), record
            data = record[len(b"data: ") :]
            found.append("[DONE]" if data == b"[DONE]" else json.loads(data))
    return found


def text_of(answer: Answer) -> str:
    """The text of the first completion, streamed or not."""
    if answer.headers["content-type"] == "application/json":
        return str(answer.json["choices"][0]["message"]["content"])
    chunks = [record for record in records(answer.body) if record != "[DONE]" and record.get("choices")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
