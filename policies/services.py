"""
What can be done to a policy. The API, the console and the commands all call these services.

A change that says which revision it was made from is one conditional UPDATE: of several made from the same
revision one is carried out. Each service is one transaction that also writes the audit trail and, where it
changes what is in force, moves the organization's epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from gateway_site.api.errors import NotFound, PolicyStateConflict, StaleRevision
from gateway_site.api.identifiers import uuid_or_none
from organization.audit import trail
from organization.audit.trail import Actor
from organization.models import Organization, Project
from policies.models import (
    IN_FORCE,
    MAX_REVISION,
    Mode,
    Policy,
    PolicyEpoch,
    PolicyScope,
    PolicyState,
    PolicyVersion,
)


def create_policy(*, organization: Organization, actor: Actor, **fields: Any) -> Policy:
    """A new policy in state `draft`. It changes nothing until it is published."""
    fields = _with_known_projects(organization, fields)
    with transaction.atomic():
        policy = Policy(organization=organization, **fields)
        policy.save(force_insert=True)
        trail.record(actor, "policy.create", policy, organization=organization, details={"name": policy.name})
    return policy


def edit_policy(*, policy: Policy, revision: int, changes: Mapping[str, Any], actor: Actor) -> Policy:
    """Change the draft, the name or the description, if the caller has seen the latest revision."""
    changes = _with_known_projects(policy.organization, changes)
    with transaction.atomic():
        seen = Policy.objects.filter(pk=policy.pk, revision=revision).values(*changes).first()
        # Every accepted edit makes a new revision, also one that changes nothing.
        if not _swap(policy, revision, **changes):
            raise _refusal(policy, revision)
        policy.refresh_from_db()
        if "name" in changes and policy.state in IN_FORCE:
            _move_epoch(policy.organization_id)  # errors and the effective list show the name
        _record(actor, "edit", policy, **_changed(seen or {}, changes))
    return policy


def pause_policy(*, policy: Policy, revision: int | None = None, actor: Actor) -> Policy:
    """Suspend a published policy. Done twice, the second changes nothing."""
    with transaction.atomic():
        policy = _locked(policy)
        _require_revision(policy, revision)
        if policy.state == PolicyState.DRAFT:
            raise PolicyStateConflict("A policy that was never published cannot be paused.")
        if policy.state != PolicyState.PAUSED:
            _advance(policy, state=PolicyState.PAUSED)
            _record(actor, "pause", policy)
    return policy


def resume_policy(*, policy: Policy, actor: Actor) -> Policy:
    """Let a paused policy apply again, as it was published. Done twice, the second changes nothing."""
    # Unspecified: policy-publication. There is no route for this, nor for publishing.
    with transaction.atomic():
        policy = _locked(policy)
        if policy.current_version is None:
            raise PolicyStateConflict("A policy that was never published cannot be resumed.")
        if policy.state == PolicyState.PAUSED:
            _advance(policy, state=policy.current_version.mode)
            _record(actor, "resume", policy)
    return policy


def publish_policy(
    *, policy: Policy, mode: Mode | str | None = None, revision: int | None = None, actor: Actor
) -> Policy:
    """
    Put the draft in force, with `mode` as its mode where one is given; with a `revision`, only that one.

    It becomes the next version, unless it is what the current one says; a paused policy applies again.
    """
    with transaction.atomic():
        policy = _locked(policy)
        _require_revision(policy, revision)
        mode_of_draft = policy.mode
        if mode is not None:
            policy.mode = Mode(mode)
        if policy.scope == PolicyScope.PROJECTS and not policy.project_ids:
            raise PolicyStateConflict("The draft is for projects and names none; it would apply nowhere.")
        # Unspecified: policy-publication. The state after publication is the published mode.
        if policy.has_unpublished_changes:
            version = _next_version(policy)
            _advance(policy, state=policy.mode, mode=policy.mode, current_version=version)
        elif policy.state != policy.mode or policy.mode != mode_of_draft:
            # Nothing new goes into force; but the draft may have had another mode, and now has this one.
            _advance(policy, state=policy.mode, mode=policy.mode)
        else:
            return policy
        _record(actor, "publish", policy, mode=str(policy.mode))
    return policy


# --- revisions ----------------------------------------------------------------------------------------


def _swap(policy: Policy, revision: int, **changes: Any) -> bool:
    """Change the row if its revision is still this one. The row count says whether it was."""
    return bool(
        Policy.objects.filter(pk=policy.pk, revision=revision, revision__lt=MAX_REVISION).update(
            **changes, revision=F("revision") + 1, updated_at=timezone.now()
        )
    )


def _refusal(policy: Policy, revision: int) -> StaleRevision | PolicyStateConflict:
    """Nothing matched: say which condition failed."""
    policy.refresh_from_db()
    if policy.revision != revision:
        return StaleRevision(policy.revision)
    return PolicyStateConflict("The policy has no revisions left; create a new one.")


def _locked(policy: Policy) -> Policy:
    """The row as it is now, with everybody else kept from it until the transaction ends."""
    rows = Policy.objects.select_for_update(of=("self",)).select_related("organization", "current_version")
    return rows.get(pk=policy.pk)


def _require_revision(policy: Policy, revision: int | None) -> None:
    if revision is not None and policy.revision != revision:
        raise StaleRevision(policy.revision)


def _advance(policy: Policy, **changes: Any) -> None:
    """Change what is in force, on a row that is locked here."""
    if not _swap(policy, policy.revision, **changes):
        raise _refusal(policy, policy.revision)
    policy.refresh_from_db()
    _move_epoch(policy.organization_id)


def _next_version(policy: Policy) -> PolicyVersion:
    latest = policy.versions.order_by("-version").values_list("version", flat=True).first()
    return PolicyVersion.objects.create(
        policy=policy,
        version=(latest or 0) + 1,
        rule=policy.rule,
        direction=policy.direction,
        mode=policy.mode,
        scope=policy.scope,
        project_ids=policy.project_ids,
        # Filled in here, so that a version means the same when the default has changed.
        match_threshold_basis_points=policy.threshold_if_published,
    )


def _move_epoch(organization_id: Any) -> None:
    rows = PolicyEpoch.objects.filter(pk=organization_id)
    if not rows.update(value=F("value") + 1):
        PolicyEpoch.objects.bulk_create([PolicyEpoch(organization_id=organization_id)], ignore_conflicts=True)
        rows.update(value=F("value") + 1)


# --- what they share ----------------------------------------------------------------------------------


def _with_known_projects(organization: Organization, fields: Mapping[str, Any]) -> dict[str, Any]:
    if "project_ids" not in fields:
        return dict(fields)
    return {**fields, "project_ids": _known_projects(organization, fields["project_ids"])}


def _known_projects(organization: Organization, given: Sequence[str]) -> list[str]:
    """These ids in their usual form and each once. A stranger's project is as unknown as none at all."""
    parsed = [uuid_or_none(text) for text in given]
    wanted = {identifier for identifier in parsed if identifier is not None}
    known = set(Project.objects.filter(organization=organization, pk__in=wanted).values_list("pk", flat=True))
    for position, identifier in enumerate(parsed):
        if identifier not in known:
            raise NotFound(
                "There is no project with this id in your organization.", param=f"project_ids[{position}]"
            )
    return list(dict.fromkeys(str(identifier) for identifier in parsed))


def _changed(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """What an edit made different, as the trail tells it."""
    changed = {name: value for name, value in changes.items() if before.get(name) != value}
    return {**changed, "before": {name: before.get(name) for name in changed}}


def _record(actor: Actor, verb: str, policy: Policy, **details: Any) -> None:
    version = policy.current_version
    trail.record(
        actor,
        f"policy.{verb}",
        policy,
        organization=policy.organization,
        details={"revision": policy.revision, "version": version.version if version else None, **details},
    )
