"""The setup checklist: what is left to do before the first request, on an empty console's overview."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from billing.models import CreditGrant, PriceVersion
from inference.models import Backend, CatalogModel, DailyActivity
from organization.models import Organization, Project, ProjectKey


@dataclass(frozen=True, slots=True)
class SetupStep:
    title: str
    text: str
    is_done: bool
    # Empty where this person may not do it.
    url: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class SetupChecklist:
    steps: list[SetupStep]
    curl: str
    playground_url: str

    @property
    def is_ready(self) -> bool:
        return all(step.is_done for step in self.steps)


def setup_checklist(request: HttpRequest) -> SetupChecklist | None:
    """The steps of the setup, as long as no request was ever made."""
    if DailyActivity.objects.exists():
        return None
    served = served_model()
    steps = [
        _step(
            request,
            "Create an organization",
            "Projects, keys and credit belong to one.",
            Organization.objects.exists(),
            "organization.organization",
        ),
        _step(
            request,
            "Add a backend and a model",
            "Add a server that has models, then choose which are served and at what price.",
            served is not None,
            "inference.catalogmodel" if Backend.objects.exists() else "inference.backend",
        ),
        _step(
            request,
            "Grant credit",
            "Requests are paid from it in advance, and refused when it is used up.",
            CreditGrant.objects.exists(),
            "billing.creditgrant",
        ),
        _step(
            request,
            "Create a project and an API key",
            "An application uses the key, and its costs are the project's. Its value is shown once.",
            _has_live_key(),
            "organization.projectkey" if Project.objects.exists() else "organization.project",
        ),
    ]
    return SetupChecklist(steps, curl(request, served) if served else "", _playground(request))


def served_model() -> str | None:
    """A model that a request can name, if there is one."""
    # One without a price is not served.
    priced = PriceVersion.objects.filter(model=OuterRef("pk"), valid_from__lte=timezone.now())
    served = CatalogModel.objects.filter(
        Exists(priced),
        is_enabled=True,
        deployments__is_enabled=True,
        deployments__backend__is_enabled=True,
    )
    return served.order_by("created_at", "id").values_list("id", flat=True).first()


def curl(request: HttpRequest, model: str) -> str:
    """One line that works when it is pasted: it asks for the key, so the key is in no history."""
    address = request.build_absolute_uri("/v1/chat/completions")
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    return (
        "printf 'API key: '; read -r KEY; "
        f'curl {shlex.quote(address)} -H "Authorization: Bearer $KEY"'
        f" -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )


def _step(request: HttpRequest, title: str, text: str, is_done: bool, model: str) -> SetupStep:
    app, name = model.split(".")
    if is_done or not request.user.has_perm(f"{app}.add_{name}"):
        return SetupStep(title, text, is_done)
    return SetupStep(title, text, is_done, reverse(f"admin:{app}_{name}_add"), title)


def _has_live_key() -> bool:
    unexpired = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    return ProjectKey.objects.filter(unexpired, revoked_at=None, suspended_at=None).exists()


def _playground(request: HttpRequest) -> str:
    if not request.user.has_perm("inference.use_playground"):
        return ""
    try:
        return reverse("playground")
    except NoReverseMatch:
        return ""
