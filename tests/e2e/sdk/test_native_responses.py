"""A model on a backend that speaks Responses natively, asked in both dialects through the gateway itself."""

from __future__ import annotations

from openai import OpenAI

from billing.models import Reservation
from tests.harness.live_server import live_server
from tests.inference.catalog.factories import deploy, make_backend, make_model
from tests.inference.customer import COLUMNS, HELLO, ApiCustomer


def test_both_dialects_are_answered_and_settled(
    customer: ApiCustomer, process_environment: dict[str, str]
) -> None:
    with live_server(process_environment) as running:
        address = f"{running.address}/v1"
        options = {"base_url": address, "credential": customer.value, "options": {"api": "responses"}}
        deploy(make_model("sim/echo", **COLUMNS), make_backend())
        deploy(make_model("via/echo", **COLUMNS), make_backend("itself", "openai", **options), "sim/echo")
        with OpenAI(base_url=address, api_key=customer.value, max_retries=0) as client:
            response = client.responses.create(model="via/echo", input=HELLO)
            completion = client.chat.completions.create(
                model="via/echo", messages=[{"role": "user", "content": HELLO}]
            )
            stream = client.responses.create(model="via/echo", input=HELLO, stream=True)
            last = list(stream)[-1]

    assert response.output_text == HELLO
    assert completion.choices[0].message.content == HELLO
    assert last.type == "response.completed"
    # Each was two requests, ours and the one that it made, and all were told what they used.
    assert list(Reservation.objects.values_list("state", "basis").distinct()) == [("settled", "usage")]
    assert Reservation.objects.count() == 6
