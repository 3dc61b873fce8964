"""
The playground: a chat in which staff use a model as a customer does.

The page calls the customers' own endpoint from the browser, with a customer key, so that authentication,
limits, policies, ledger and activity are those of every request. Here is only what surrounds it: the page,
the key, and what became of a request.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from billing.money import short_usd
from gateway_site.api.errors import ApiError, NotFound
from gateway_site.api.identifiers import uuid_or_none
from gateway_site.console.playground import keys
from gateway_site.console.playground.keys import PERMISSION, SESSION_ENTRY
from inference.catalog.served_models import enabled_models
from inference.dialects.chat import dialect
from inference.models import Activity, CatalogModel, read_price_versions
from organization.models import Project
from policies.models import Verdict

# What a person can look through. Another project is opened from its own page, by `?project=`.
MOST_PROJECTS, MOST_MODELS = 500, 500


@require_safe
@permission_required(PERMISSION, raise_exception=True)
def page(request: HttpRequest) -> HttpResponse:
    """Answer the playground's page. No key is made before the first message is sent."""
    chosen = uuid_or_none(request.GET.get("project", ""))
    context = {
        **admin.site.each_context(request),
        "title": "Playground",
        "endpoint": dialect.PATH,
        "projects": _projects(chosen),
        "chosen": chosen,
        "models": _servable_models(),
        "hints": _hints(),
        "receipt_path": reverse("playground-receipt", args=[uuid.UUID(int=0)]),
        "lifetime_minutes": int(keys.LIFETIME.total_seconds() // 60),
    }
    return TemplateResponse(request, "admin/playground.html", context)


@require_POST
@never_cache
@permission_required(PERMISSION, raise_exception=True)
def open_session(request: HttpRequest) -> HttpResponse:
    """Make a key for the chosen project, which this page is sent once."""
    project = _find_project(request.POST.get("project", ""))
    try:
        if project is None:
            raise NotFound("There is no such project any more.")
        made = keys.open_key(
            person=request.user, project=project, previous_id=request.session.get(SESSION_ENTRY)
        )
    except ApiError as error:
        return JsonResponse({"message": error.message}, status=error.status)
    request.session[SESSION_ENTRY] = str(made.key.pk)
    return JsonResponse({"value": made.value, "name": made.key.name})


@require_POST
@never_cache
@permission_required(PERMISSION, raise_exception=True)
def end_session(request: HttpRequest) -> HttpResponse:
    """Revoke the key of a page that was left."""
    keys.end_key(person=request.user, key_id=request.session.pop(SESSION_ENTRY, None))
    return HttpResponse(status=204)


@require_safe
@never_cache
@permission_required("inference.view_activity", raise_exception=True)
def receipt(request: HttpRequest, request_id: uuid.UUID) -> HttpResponse:
    """Answer with the outcome of one request, as far as it is recorded yet."""
    activity = Activity.objects.filter(pk=request_id).first()
    if activity is None:
        return JsonResponse({"is_ready": False})
    may_see_verdicts = request.user.has_perm("policies.view_verdict")
    return JsonResponse(
        {
            "is_ready": True,
            "url": reverse("admin:inference_activity_change", args=[activity.pk]),
            "status": activity.status,
            "code": activity.code,
            "prompt_tokens": activity.prompt_tokens,
            "cached_tokens": activity.cached_tokens,
            "completion_tokens": activity.completion_tokens,
            "reasoning_tokens": activity.reasoning_tokens,
            "cost": None if activity.cost_nanousd is None else short_usd(activity.cost_nanousd),
            "first_token_ms": activity.first_token_ms,
            "total_ms": activity.total_ms,
            "deployment": activity.deployment,
            "verdicts": [_verdict_json(verdict) for verdict in _verdicts(request_id)]
            if may_see_verdicts
            else [],
        }
    )


def _verdicts(request_id: uuid.UUID) -> Iterable[Verdict]:
    return Verdict.objects.filter(request_id=request_id).select_related("version__policy").order_by("pk")


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    policy = verdict.version.policy
    return {
        "policy": policy.name,
        "url": reverse("admin:policies_policy_change", args=[policy.pk]),
        "version": verdict.version.version,
        "direction": verdict.direction,
        "mode": verdict.mode,
        "outcome": verdict.outcome,
        "score": None if verdict.score is None else f"{verdict.score:.2%}",
        "threshold": f"{verdict.threshold_basis_points / 10_000:.2%}",
        "judge": verdict.judge,
        "latency_ms": verdict.latency_ms,
        "reason": verdict.reason,
    }


def _find_project(text: str) -> Project | None:
    identifier = uuid_or_none(text)
    return (
        Project.objects.select_related("organization").filter(pk=identifier).first() if identifier else None
    )


def _projects(chosen: uuid.UUID | None) -> list[Project]:
    """Projects that can be charged, by organization and name; `chosen` among them however many there are."""
    active = Project.objects.filter(archived_at=None).select_related("organization")
    found = list(active.order_by("organization__name", "name", "pk")[:MOST_PROJECTS])
    if chosen is not None and all(project.pk != chosen for project in found):
        found += active.filter(pk=chosen)
    return found


def _servable_models() -> list[CatalogModel]:
    models = list(enabled_models().order_by("pk")[:MOST_MODELS])
    read_price_versions(models)
    return [model for model in models if model.price_version and model.live_deployments]  # type: ignore[attr-defined]


def _hints() -> dict[str, dict[str, str]]:
    """What to do about a refusal, by the beginning of its code."""
    pages = {
        "insufficient_credit": ("Grant credit to the organization.", "admin:billing_creditgrant_changelist"),
        "organization_": ("See the spending limits.", "admin:billing_spendingcap_changelist"),
        "project_archived": ("Choose another project.", "admin:organization_project_changelist"),
        "project_": ("See the spending limits.", "admin:billing_spendingcap_changelist"),
        "key_": ("See the spending limits.", "admin:billing_spendingcap_changelist"),
        "model_": (
            "See the models, their prices and deployments.",
            "admin:inference_catalogmodel_changelist",
        ),
        "policy_": ("See the policies.", "admin:policies_policy_changelist"),
    }
    return {code: {"text": text, "url": reverse(name)} for code, (text, name) in pages.items()}


urls = [
    path("", admin.site.admin_view(page), name="playground"),
    path("session", admin.site.admin_view(open_session), name="playground-session"),
    path("end", admin.site.admin_view(end_session), name="playground-end"),
    path("receipt/<uuid:request_id>", admin.site.admin_view(receipt), name="playground-receipt"),
]
