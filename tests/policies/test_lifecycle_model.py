"""The lifecycle against a plain model of it, over random histories with stale edits in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gateway_site.api.errors import PolicyStateConflict
from organization import services as organization_services
from organization.models import AuditEvent
from policies import services
from policies.enforcement import attachment
from policies.models import Policy, PolicyEpoch, PolicyVersion
from policies.serializers import PolicyResponse
from tests.factories import SOMEONE, make_admin_key
from tests.harness.client import ApiClient

EXAMPLES, STEPS = 12, 25

drafts = st.fixed_dictionaries(
    {},
    optional={
        "rule": st.sampled_from(["Is it?", "Was it?"]),
        "direction": st.sampled_from(["request", "response", "both"]),
        "mode": st.sampled_from(["monitoring", "enforcing"]),
        "scope": st.sampled_from(["organization", "unattached", "projects"]),
        "match_threshold_basis_points": st.sampled_from([None, 1, 5000, 9999]),
    },
)
offsets = st.sampled_from([0, 0, 0, -1, 1])


@dataclass
class Model:
    """What the description says a policy is, with no database."""

    state: str = "draft"
    revision: int = 1
    draft: dict[str, Any] = field(
        default_factory=lambda: {
            "rule": "Is it?",
            "direction": "both",
            "mode": "monitoring",
            "scope": "organization",
            "match_threshold_basis_points": None,
        }
    )
    versions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def would_publish(self) -> dict[str, Any]:
        threshold = self.draft["match_threshold_basis_points"]
        return {**self.draft, "match_threshold_basis_points": 5000 if threshold is None else threshold}

    @property
    def has_changes(self) -> bool:
        return not self.versions or self.versions[-1] != self.would_publish

    def publish(self, mode: str | None) -> bool:
        draft = {**self.draft, **({"mode": mode} if mode else {})}
        if draft["scope"] == "projects":  # and this history names none
            return False
        is_same, self.draft = draft == self.draft, draft
        if self.has_changes:
            self.versions.append(self.would_publish)
        elif self.state == draft["mode"] and is_same:
            return True
        self.state = draft["mode"]
        self.revision += 1
        return True


class Lifecycle(RuleBasedStateMachine):
    serial = 0

    @initialize()
    def begin(self) -> None:
        Lifecycle.serial += 1
        name = f"Acme {Lifecycle.serial}"
        self.organization, _ = organization_services.create_organization(name=name, actor=SOMEONE)
        self.project, _ = organization_services.create_project(
            organization=self.organization, name="Web", actor=SOMEONE
        )
        self.api = ApiClient(make_admin_key(self.organization).value)
        self.policy = services.create_policy(
            organization=self.organization, name="P", rule="Is it?", actor=SOMEONE
        )
        self.url = f"/v1/organization/policies/{self.policy.pk}"
        self.model = Model()

    @rule(changes=drafts, offset=offsets)
    def edit(self, changes: dict[str, Any], offset: int) -> None:
        revision = max(1, self.model.revision + offset)
        answer = self.api.request("PATCH", self.url, {"revision": revision, **changes})
        if revision != self.model.revision:
            assert answer.status == 409
            return
        assert answer.status == 200, answer.body
        self.model.draft |= changes
        self.model.revision += 1

    @rule(offset=offsets)
    def pause(self, offset: int) -> None:
        revision = max(1, self.model.revision + offset)
        answer = self.api.post(f"{self.url}/pause", {"revision": revision})
        if revision != self.model.revision or self.model.state == "draft":
            assert answer.status == 409
            return
        assert answer.status == 200
        if self.model.state != "paused":
            self.model.state = "paused"
            self.model.revision += 1

    @rule(mode=st.sampled_from([None, "monitoring", "enforcing"]))
    def publish(self, mode: str | None) -> None:
        if self.model.publish(mode):
            services.publish_policy(policy=self.policy, mode=mode, actor=SOMEONE)
        else:
            with pytest.raises(PolicyStateConflict):
                services.publish_policy(policy=self.policy, mode=mode, actor=SOMEONE)

    @rule()
    def resume(self) -> None:
        if self.model.state == "draft":
            with pytest.raises(PolicyStateConflict):
                services.resume_policy(policy=self.policy, actor=SOMEONE)
            return
        services.resume_policy(policy=self.policy, actor=SOMEONE)
        if self.model.state == "paused":
            self.model.state = self.model.versions[-1]["mode"]
            self.model.revision += 1

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        shown = PolicyResponse(Policy.objects.get(pk=self.policy.pk)).data
        model = self.model
        assert (shown["state"], shown["revision"]) == (model.state, model.revision)
        assert shown["has_unpublished_changes"] == model.has_changes
        assert shown["current_version"] == (len(model.versions) or None)
        assert shown["draft"] == {**model.draft, "project_ids": [], "base_version": len(model.versions)}
        stored = PolicyVersion.objects.filter(policy=self.policy).order_by("version")
        assert [{name: getattr(row, name) for name in model.draft} for row in stored] == model.versions
        if model.versions:
            assert {name: shown["published"][name] for name in model.draft} == model.versions[-1]

    @invariant()
    def it_applies_as_it_was_published(self) -> None:
        is_in_force = self.model.state in ("monitoring", "enforcing")
        applied = list(map(attachment.attached, attachment.effective_policies(self.project)))
        if is_in_force and self.model.versions[-1]["scope"] == "organization":
            assert [(each.rule, each.mode) for each in applied] == [
                (self.model.versions[-1]["rule"], self.model.versions[-1]["mode"])
            ]
        else:
            assert applied == []

    @invariant()
    def every_change_left_a_trace(self) -> None:
        trail = AuditEvent.objects.filter(target_id=str(self.policy.pk))
        assert trail.count() == self.model.revision
        moved = trail.filter(action__in=["policy.publish", "policy.pause", "policy.resume"]).count()
        epoch = PolicyEpoch.objects.filter(organization=self.organization).first()
        assert (epoch.value if epoch else 0) == moved
        assert Policy.objects.filter(organization=self.organization).count() == 1


@pytest.mark.slow
def test_random_histories_end_as_the_model_says(db: None) -> None:
    run_state_machine_as_test(
        Lifecycle,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
