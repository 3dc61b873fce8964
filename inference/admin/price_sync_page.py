"""
The console's page that compares the catalog's prices with the public list, and applies what is chosen.

What was shown is what is applied: the form has a digest of the whole comparison, and where it is another one
by now, nothing is applied and the page is shown again.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from gateway_site.api.errors import ApiError
from gateway_site.console.kit.actions import MOST_DESCRIBED, MOST_ROWS
from inference.catalog.price_lists import reader_process, synchronization
from inference.catalog.price_lists.comparison import Comparison, PriceState, compare, questions
from inference.catalog.price_lists.report import model_as_json
from organization.audit.trail import Actor

TITLE = "Sync prices"
BADGES = {
    PriceState.CHANGED: "gw-badge-warning",
    PriceState.VANISHED: "gw-badge-danger",
    PriceState.REFUSED: "gw-badge-danger",
}
STALE = "The prices are others than the ones that you were shown. Nothing was applied: choose again."
CONFIRMATION = {
    "label": "Apply these prices",
    "consequence": "New requests are charged by these prices within seconds. Running ones keep the price "
    "that they were admitted under.",
}


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@permission_required("inference.change_catalogmodel", raise_exception=True)
def page(request: HttpRequest) -> HttpResponse:
    """Answer the comparison, the confirmation of what was chosen in it, or carry that out."""
    try:
        comparison = _comparison()
    except ApiError as error:
        return _page(request, {"problem": error.message})
    if request.method != "POST":
        return _page(request, _table(comparison))
    chosen = set(request.POST.getlist("chosen"))
    models = [each for each in comparison.models if each.model in chosen and each.planned]
    if request.POST.get("digest") != comparison.digest or len(models) != len(chosen):
        messages.error(request, STALE)
        return _page(request, _table(comparison), status=409)
    if not 1 <= len(models) <= MOST_ROWS:
        messages.error(request, f"Choose 1 to {MOST_ROWS} models.")
        return _page(request, _table(comparison), status=400)
    if request.POST.get("confirmed") != "yes":
        return _confirmation(request, comparison, [model_as_json(each) for each in models])
    changed = synchronization.apply(models, comparison.list_name, Actor.staff(request.user))
    messages.success(request, f"New prices: {', '.join(changed) or 'none'}.")
    return HttpResponseRedirect(reverse("price-sync"))


def _comparison() -> Comparison:
    synchronization.require_library()
    asking = questions()
    return compare(reader_process.answer(asking)) if asking else Comparison("genai-prices", ())


def _table(comparison: Comparison) -> dict[str, Any]:
    rows = [
        {**model_as_json(each), "badge": BADGES.get(each.state, ""), "is_applicable": each.is_applicable}
        for each in comparison.models
    ]
    # What can be done first, then what cannot be, then what is as it should be.
    order = [state.value for state in PriceState if state is not PriceState.SAME] + [PriceState.SAME.value]
    rows.sort(key=lambda row: (order.index(row["state"]), row["model"]))
    is_any_applicable = any(row["is_applicable"] for row in rows)
    return {
        "comparison": comparison,
        "rows": rows,
        "is_any_applicable": is_any_applicable,
        "most_rows": MOST_ROWS,
    }


def _confirmation(request: HttpRequest, comparison: Comparison, models: list[dict[str, Any]]) -> HttpResponse:
    described = [(each["model"], _lines(each)) for each in models]
    context = {
        "action": {**CONFIRMATION, "is_dangerous": any(each["doubts"] for each in models)},
        "described": described[:MOST_DESCRIBED],
        "undescribed": max(0, len(described) - MOST_DESCRIBED),
        "hidden": [("digest", comparison.digest), *(("chosen", each["model"]) for each in models)],
        "is_last": True,
        "back": reverse("price-sync"),
    }
    return _render(request, "admin/confirm_action.html", context)


def _lines(row: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("Row of the list", row["rows"][0])]
    for version in row["versions"]:
        since = f"From {version['valid_from'][:10]}" if version["valid_from"] else "From now"
        lines += [(since, line) for line in version["lines"]]
    return lines + [("Are you sure?", doubt) for doubt in row["doubts"]]


def _page(request: HttpRequest, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    return _render(request, "admin/price_sync.html", context, status=status)


def _render(
    request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    everywhere = admin.site.each_context(request)
    return TemplateResponse(request, template, {**everywhere, "title": TITLE, **context}, status=status)
