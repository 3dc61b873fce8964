"""
The console's sidebar: which pages it lists, for whom, and in which order.

The settings import this, so nothing here may need an app to be loaded: addresses and permissions are asked
for when a page is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy


def _has(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.user.has_perm(permission)


def _page(title: str, icon: str, link: Any, permission: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": link, "permission": _has(permission)}


def _list(title: str, icon: str, app: str, model: str) -> dict[str, Any]:
    """A model's list, for those who may see it."""
    link = reverse_lazy(f"admin:{app}_{model}_changelist")
    return _page(title, icon, link, f"{app}.view_{model}")


NAVIGATION: list[dict[str, Any]] = [
    {"items": [{"title": "Overview", "icon": "space_dashboard", "link": reverse_lazy("admin:index")}]},
    {
        "title": "Monitoring",
        "items": [
            _list("Requests", "receipt_long", "inference", "activity"),
            _page("Live tail", "stream", "/admin/tail/", "inference.view_activity"),
            _page("Playground", "chat", "/admin/playground/", "inference.use_playground"),
        ],
    },
    {
        "title": "Organizations & keys",
        "items": [
            _list("Organizations", "apartment", "organization", "organization"),
            _list("Projects", "folder", "organization", "project"),
            _list("API keys", "key", "organization", "projectkey"),
            _list("Admin keys", "admin_panel_settings", "organization", "adminkey"),
        ],
    },
    {
        "title": "Billing",
        "items": [
            _list("Credit", "account_balance_wallet", "billing", "account"),
            _list("Grants", "add_card", "billing", "creditgrant"),
            _list("Spending limits", "speed", "billing", "spendingcap"),
            _list("Reservations", "hourglass_top", "billing", "reservation"),
            _page("Costs", "bar_chart", reverse_lazy("costs"), "billing.view_costline"),
            _list("Cost lines", "list_alt", "billing", "costline"),
            _list("Corrections", "currency_exchange", "billing", "correction"),
        ],
    },
    {
        "title": "Models",
        "items": [
            _list("Models", "neurology", "inference", "catalogmodel"),
            _list("Price versions", "price_change", "billing", "priceversion"),
            _list("Backends", "dns", "inference", "backend"),
            _page("Sync prices", "sync", reverse_lazy("price-sync"), "inference.change_catalogmodel"),
            _list("Passed checks", "verified", "inference", "passedcheck"),
        ],
    },
    {
        "title": "Policies",
        "items": [
            _list("Policies", "policy", "policies", "policy"),
            _list("Versions", "history", "policies", "policyversion"),
            _list("Verdicts", "gavel", "policies", "verdict"),
        ],
    },
    {
        "title": "Administration",
        "items": [
            _list("Audit trail", "footprint", "organization", "auditevent"),
            _list("Ledger audits", "balance", "billing", "ledgeraudit"),
            _list("Users", "person", "auth", "user"),
            _list("Roles", "groups", "auth", "group"),
        ],
    },
]
