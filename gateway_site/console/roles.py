"""
The roles of the console, and what each may do: one table over every permission there is.

A role is a Django group of this name. A migration makes the groups; `apply` brings them to what the table
says, and is called again by a new migration whenever the table changes. A test holds that no model is
forgotten.
"""

from __future__ import annotations

from typing import Any

OWNER, OPERATOR, BILLING, READER = "Owner", "Operator", "Billing", "Read-only"
ROLES = {
    OWNER: "Everything, the people of the console included.",
    OPERATOR: "Organizations, projects, keys, models, backends and policies. Sees money and moves none.",
    BILLING: "Credit, limits, unsettled requests and cost reports. Sees the rest.",
    READER: "Sees everything but people, and changes nothing.",
}
EVERYBODY = (OWNER, OPERATOR, BILLING, READER)
OPERATORS = (OWNER, OPERATOR)
ACCOUNTANTS = (OWNER, BILLING)
OWNERS = (OWNER,)
NOBODY: tuple[str, ...] = ()

Roles = tuple[str, ...]
RolesByVerb = dict[str, Roles]


def _allowed(
    *,
    view: Roles = EVERYBODY,
    add: Roles = NOBODY,
    change: Roles = NOBODY,
    delete: Roles = NOBODY,
    **others: Roles,
) -> RolesByVerb:
    return {"view": view, "add": add, "change": change, "delete": delete, **others}


VIEW_ONLY = _allowed()
HIDDEN = _allowed(view=NOBODY)
# To change a model is also to use the actions of its page, though its fields be read-only.
TABLE: dict[str, RolesByVerb] = {
    "organization.organization": _allowed(add=OPERATORS, change=OPERATORS),
    "organization.project": _allowed(add=OPERATORS, change=OPERATORS),
    "organization.projectkey": _allowed(add=OPERATORS, change=OPERATORS),
    "organization.adminkey": _allowed(add=OPERATORS, change=OPERATORS),
    "organization.auditevent": VIEW_ONLY,
    # Answers with secrets in them, and the keys of those.
    "organization.idempotencyrecord": HIDDEN,
    "organization.secretday": HIDDEN,
    "organization.auditlink": HIDDEN,
    "organization.auditchainhead": HIDDEN,
    "billing.account": VIEW_ONLY,
    "billing.creditgrant": _allowed(add=ACCOUNTANTS),
    "billing.spendingcap": _allowed(add=ACCOUNTANTS, change=ACCOUNTANTS),
    "billing.capperiod": VIEW_ONLY,
    "billing.keymeter": VIEW_ONLY,
    "billing.reservation": _allowed(change=ACCOUNTANTS),
    "billing.costline": VIEW_ONLY,
    "billing.dailycost": VIEW_ONLY,
    "billing.unrolledcost": VIEW_ONLY,
    "billing.ledgeraudit": VIEW_ONLY,
    "billing.correction": _allowed(add=ACCOUNTANTS),
    "billing.costadjustment": VIEW_ONLY,
    "billing.priceversion": VIEW_ONLY,
    "policies.policy": _allowed(add=OPERATORS, change=OPERATORS),
    "policies.policyversion": VIEW_ONLY,
    "policies.policyepoch": VIEW_ONLY,
    "policies.verdict": VIEW_ONLY,
    "policies.dailyverdicts": VIEW_ONLY,
    "inference.backend": _allowed(add=OPERATORS, change=OPERATORS),
    "inference.catalogmodel": _allowed(add=OPERATORS, change=OPERATORS),
    "inference.deployment": _allowed(add=OPERATORS, change=OPERATORS, delete=OPERATORS),
    "inference.passedcheck": _allowed(add=OPERATORS, delete=OPERATORS),
    # What is asked in the playground is charged to a customer.
    "inference.activity": _allowed(use_playground=OPERATORS),
    "inference.dailyactivity": VIEW_ONLY,
    "auth.user": _allowed(view=OWNERS, add=OWNERS, change=OWNERS),
    # Roles are this table; nobody edits them by hand.
    "auth.group": _allowed(view=OWNERS),
    "auth.permission": HIDDEN,
    "admin.logentry": HIDDEN,
    "contenttypes.contenttype": HIDDEN,
    "sessions.session": HIDDEN,
    "gateway_site.playgroundkey": HIDDEN,
}


def codename(verb: str, model: str) -> str:
    """Django's name of a permission: its own verbs are joined with the model's name, ours are names."""
    return f"{verb}_{model}" if verb in ("view", "add", "change", "delete") else verb


def permissions_of(role: str) -> set[str]:
    """What a role may do, as Django names permissions: `organization.view_project`."""
    return {
        f"{label.split('.')[0]}.{codename(verb, label.split('.')[1])}"
        for label, roles_by_verb in TABLE.items()
        for verb, allowed in roles_by_verb.items()
        if role in allowed
    }


def apply(apps: Any) -> None:
    """Make the groups be what the table says, as far as the permissions exist by now."""
    groups, permissions = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    known = {
        f"{each.content_type.app_label}.{each.codename}": each.pk
        for each in permissions.objects.select_related("content_type")
    }
    for role in ROLES:
        group, _ = groups.objects.get_or_create(name=role)
        group.permissions.set([known[name] for name in permissions_of(role) if name in known])


def grantable_by(user: Any) -> list[str]:
    """The roles that this person may give to others: none that may do more than they themselves."""
    own = user.get_all_permissions()
    return [role for role in ROLES if user.is_superuser or permissions_of(role) <= own]
