"""
Who may do what in the console: four roles, as one table over every permission there is.

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

Who = tuple[str, ...]
Decision = dict[str, Who]


def _decided(
    *, view: Who = EVERYBODY, add: Who = NOBODY, change: Who = NOBODY, delete: Who = NOBODY, **others: Who
) -> Decision:
    return {"view": view, "add": add, "change": change, "delete": delete, **others}


SEEN = _decided()
HIDDEN = _decided(view=NOBODY)
# To change a model is also to use the actions of its page, though its fields be read-only.
TABLE: dict[str, Decision] = {
    "organization.organization": _decided(add=OPERATORS, change=OPERATORS),
    "organization.project": _decided(add=OPERATORS, change=OPERATORS),
    "organization.projectkey": _decided(add=OPERATORS, change=OPERATORS),
    "organization.adminkey": _decided(add=OPERATORS, change=OPERATORS),
    "organization.auditevent": SEEN,
    # Answers with secrets in them, and the keys of those.
    "organization.idempotencyrecord": HIDDEN,
    "organization.secretday": HIDDEN,
    "organization.auditlink": HIDDEN,
    "organization.auditchainhead": HIDDEN,
    "billing.account": SEEN,
    "billing.creditgrant": _decided(add=ACCOUNTANTS),
    "billing.spendingcap": _decided(add=ACCOUNTANTS, change=ACCOUNTANTS),
    "billing.capperiod": SEEN,
    "billing.keymeter": SEEN,
    "billing.reservation": _decided(change=ACCOUNTANTS),
    "billing.costline": SEEN,
    "billing.dailycost": SEEN,
    "billing.unrolledcost": SEEN,
    "billing.ledgeraudit": SEEN,
    "policies.policy": _decided(add=OPERATORS, change=OPERATORS),
    "policies.policyversion": SEEN,
    "policies.policyepoch": SEEN,
    "policies.verdict": SEEN,
    "policies.dailyverdicts": SEEN,
    "inference.backend": _decided(add=OPERATORS, change=OPERATORS),
    "inference.catalogmodel": _decided(add=OPERATORS, change=OPERATORS),
    "inference.deployment": _decided(add=OPERATORS, change=OPERATORS, delete=OPERATORS),
    "inference.passedcheck": _decided(add=OPERATORS, delete=OPERATORS),
    # What is asked in the playground is charged to a customer.
    "inference.activity": _decided(use_playground=OPERATORS),
    "inference.dailyactivity": SEEN,
    "auth.user": _decided(view=OWNERS, add=OWNERS, change=OWNERS),
    # Roles are this table; nobody edits them by hand.
    "auth.group": _decided(view=OWNERS),
    "auth.permission": HIDDEN,
    "admin.logentry": HIDDEN,
    "contenttypes.contenttype": HIDDEN,
    "sessions.session": HIDDEN,
    "gateway_site.playgroundkey": HIDDEN,
}


def codename(verb: str, model: str) -> str:
    """Django's own verbs are joined with the model's name; a permission of our own has a name already."""
    return f"{verb}_{model}" if verb in ("view", "add", "change", "delete") else verb


def permissions_of(role: str) -> set[str]:
    """What a role may do, as Django names permissions: `organization.view_project`."""
    return {
        f"{label.split('.')[0]}.{codename(verb, label.split('.')[1])}"
        for label, decision in TABLE.items()
        for verb, who in decision.items()
        if role in who
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
