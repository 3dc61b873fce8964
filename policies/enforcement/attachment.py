"""
Which policies apply to a request: those of its project by scope, and those that it names.

Every process remembers what is in force in an organization, under the organization's epoch. The epoch moves
in the transaction that publishes, pauses or renames, and each request reads it: one row by its primary key,
in one thread of the process that also does the reading when it has moved. Requests that come while a read
runs share the next one, so a busy process reads once for many. A read begins after the request that waits
for it, so a publication or a pause that has returned is seen by every request that starts later, in all
processes. A request keeps the versions that it was given.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gateway_site.api.errors import PolicyNotFound
from gateway_site.api.identifiers import uuid_or_none
from organization.models import Project
from policies.models import IN_FORCE, Direction, Mode, Policy, PolicyScope


class AttachedVersion(Struct, frozen=True, kw_only=True):
    """One published version, as a request carries it from its start to its end."""

    policy_id: uuid.UUID
    version_id: uuid.UUID
    name: str
    rule: str
    direction: str
    mode: str
    scope: str
    project_ids: frozenset[str]
    threshold_basis_points: int

    @property
    def is_enforcing(self) -> bool:
        return self.mode == Mode.ENFORCING

    def reads(self, direction: str) -> bool:
        return self.direction in (Direction.BOTH, direction)

    def is_automatic_for(self, project_id: uuid.UUID) -> bool:
        if self.scope == PolicyScope.PROJECTS:
            return str(project_id) in self.project_ids
        return self.scope == PolicyScope.ORGANIZATION

    def is_match(self, score: float) -> bool:
        """Whether this probability of "yes" reaches the threshold."""
        return score * 10_000 >= self.threshold_basis_points


# What is in force in one organization, by policy.
PolicySnapshot = Mapping[uuid.UUID, AttachedVersion]


def effective_policies(project: Project) -> list[Policy]:
    """The policies that apply to every request of the project, the oldest first. Asks the database."""
    in_force = policies_in_force(project.organization_id)
    return [policy for policy in in_force if attached(policy).is_automatic_for(project.pk)]


def versions_for_request(
    snapshot: PolicySnapshot, project_id: uuid.UUID, policy_ids: Sequence[str] = ()
) -> list[AttachedVersion]:
    """The versions attached to the project and those that the request names, each once."""
    chosen = {
        version.policy_id: version for version in snapshot.values() if version.is_automatic_for(project_id)
    }
    for position, text in enumerate(policy_ids):
        identifier = uuid_or_none(text)
        version = snapshot.get(identifier) if identifier is not None else None
        if version is None:
            raise PolicyNotFound(param=f"policy_ids[{position}]")
        chosen[version.policy_id] = version
    return list(chosen.values())


def snapshot_of(organization_id: uuid.UUID) -> PolicySnapshot:
    """Read what is in force in an organization now, from the database."""
    return by_policy(attached(policy) for policy in policies_in_force(organization_id))


def by_policy(versions: Iterable[AttachedVersion]) -> PolicySnapshot:
    return {version.policy_id: version for version in versions}


def policies_in_force(organization_id: uuid.UUID) -> Iterable[Policy]:
    rows = Policy.objects.select_related("current_version").filter(organization_id=organization_id)
    return rows.filter(state__in=IN_FORCE).order_by("created_at", "id")


def attached(policy: Policy) -> AttachedVersion:
    version = policy.current_version
    assert version is not None  # noqa: S101 - a constraint holds it for every policy in force
    return AttachedVersion(
        policy_id=policy.pk,
        version_id=version.pk,
        name=policy.name,
        rule=version.rule,
        direction=version.direction,
        mode=version.mode,
        scope=version.scope,
        project_ids=frozenset(version.project_ids),
        threshold_basis_points=version.match_threshold_basis_points,
    )
