"""What `quickstart` makes: an organization with credit and keys, once, and models to ask."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from billing.money import parse_price, parse_usd
from billing.services import grant_credit
from gateway_site.quickstart import llama_server
from inference.backends.kinds import SIMULATOR_VOCABULARY
from inference.catalog import services as inference_services
from inference.models import Backend, CatalogModel
from organization import services
from organization.audit.trail import Actor
from organization.models import Organization

ORGANIZATION, PROJECT, OPERATOR = "Demo", "Playground", "admin"
CREDIT_USD = "10"
LOCAL, SIMULATOR = "local", "simulator"
SIMULATED_MODEL = f"{SIMULATOR}/echo"
# The last ones fail on purpose, for trying how an application takes it.
SIMULATED = (
    "echo",
    "words",
    "thinker",
    "endless",
    "paced-100x20",
    "refusal",
    "filtered",
    "fails-rejected",
    "fails-busy",
    "fails-500",
    "fails-cut-midway",
)
# More than nothing, so that costs are seen; little enough for the credit to last.
PRICES = {
    "prompt": parse_price("0.0000001"),
    "cached": parse_price("0.00000005"),
    "completion": parse_price("0.0000004"),
}
LOCAL_COLUMNS = {
    "display_name": "SmolLM2 135M Instruct",
    "quantization": "Q4_1",
    "context_length": llama_server.CONTEXT_LENGTH,
    "max_output_length": llama_server.CONTEXT_LENGTH // 2,
    "supported_sampling_parameters": ["temperature", "top_p", "stop", "seed", "max_tokens"],
    "supported_features": ["structured_outputs", "logprobs"],
}


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo organization, with the secrets that are shown once; None where it was there already."""

    organization: Organization
    customer_key: str | None = None
    admin_key: str | None = None
    password: str | None = None


def prepare_demo() -> Demo:
    """Make the demo organization, its keys and an operator. What exists is left as it is."""
    actor = Actor.command("quickstart")
    with transaction.atomic():
        password = _create_operator()
        existing = Organization.objects.filter(name=ORGANIZATION).first()
        if existing is not None:
            _grant_credit(existing, actor)
            return Demo(existing, password=password)
        organization, _ = services.create_organization(name=ORGANIZATION, actor=actor)
        project, _ = services.create_project(organization=organization, name=PROJECT, actor=actor)
        customer = services.create_project_key(project=project, name="quickstart", actor=actor)
        admin = services.create_admin_key(organization=organization, name="quickstart", actor=actor)
        _grant_credit(organization, actor)
    return Demo(organization, customer.value, admin.value, password)


def prepare_models(*, local_base_url: str) -> str:
    """
    Register the simulator, and the local model where it runs; the id of the one to try first.

    Models that are there keep what an operator changed. The local backend follows its process: to where it
    listens this time, or off.
    """
    actor = Actor.command("quickstart")
    with transaction.atomic():
        simulator, _ = inference_services.save_backend(name=SIMULATOR, kind="simulator", actor=actor)
        for name in SIMULATED:
            _register(simulator, f"{SIMULATOR}/{name}", {"tokenizer": SIMULATOR_VOCABULARY}, actor)
        if not local_base_url:
            _switch_off_local(actor)
            return SIMULATED_MODEL
        local, _ = inference_services.save_backend(
            name=LOCAL,
            kind="openai",
            base_url=local_base_url,
            options={"server": "llama.cpp"},
            is_enabled=True,
            actor=actor,
        )
        _register(local, llama_server.MODEL_ID, LOCAL_COLUMNS, actor)
    return llama_server.MODEL_ID


def _register(backend: Backend, model_id: str, columns: Mapping[str, Any], actor: Actor) -> None:
    if CatalogModel.objects.filter(pk=model_id).exists():
        return
    model, _ = inference_services.save_model(
        model_id=model_id,
        changes={"owned_by": backend.name, **columns},
        prices=PRICES,
        actor=actor,
        upstream_ids=[model_id],
    )
    inference_services.save_deployment(model=model, backend=backend, upstream_id=model_id, actor=actor)


def _switch_off_local(actor: Actor) -> None:
    existing = Backend.objects.filter(name=LOCAL, kind="openai").first()
    if existing is not None:
        inference_services.save_backend(
            name=LOCAL, kind=existing.kind, base_url=existing.base_url, is_enabled=False, actor=actor
        )


def _grant_credit(organization: Organization, actor: Actor) -> None:
    # By its reference this happens once, however often it is asked for.
    grant_credit(
        organization=organization,
        amount_nanousd=parse_usd(CREDIT_USD),
        actor=actor,
        reason="to try the gateway with",
        reference="quickstart",
    )


def _create_operator() -> str | None:
    users = get_user_model()._default_manager
    if users.exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(OPERATOR, password=password)
    return password
