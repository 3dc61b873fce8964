"""What is in force is known to every process the moment that it is."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from gateway_site.api.errors import PolicyNotFound, PolicyViolation, Unavailable
from organization.models import Organization, Project
from policies import services
from policies.enforcement.attachment import PolicySnapshot
from policies.enforcement.background_judging import background
from policies.enforcement.publication_cache import PublicationCache
from policies.enforcement.request_policies import RequestPolicies
from policies.judges.quoted import QuotedJudge
from policies.models import Policy, Verdict
from policies.verdicts.writer import writer
from tests.factories import SOMEONE
from tests.harness.live_server import ROOT
from tests.policies.factories import PHRASE, make_policy, make_published

pytestmark = pytest.mark.django_db(transaction=True)

REQUEST = uuid.uuid4()


def names(project: Project, *policy_ids: str) -> list[str]:
    """Of the versions that a request of the project would get now."""

    async def run() -> list[str]:
        policies = await RequestPolicies.attach(project=project, request_id=REQUEST, policy_ids=policy_ids)
        return [version.name for version in policies.versions]

    return asyncio.run(run())


async def asked(reader: PublicationCache, organization: Organization) -> PolicySnapshot:
    return await reader.read(organization.pk)


def test_it_works(acme: Organization, project: Project, rival_project: Project) -> None:
    assert names(project) == []
    first = make_published(acme, name="first")
    assert names(project) == ["first"]
    named = make_published(acme, name="named", scope="unattached")
    assert names(project) == ["first"]
    assert names(project, str(named.pk), str(first.pk), str(named.pk)) == ["first", "named"]

    services.pause_policy(policy=first, actor=SOMEONE)
    assert names(project) == []
    services.resume_policy(policy=first, actor=SOMEONE)
    assert names(project) == ["first"]
    first.refresh_from_db()
    services.edit_policy(policy=first, revision=first.revision, changes={"name": "renamed"}, actor=SOMEONE)
    assert names(project) == ["renamed"]
    assert names(rival_project) == []


def test_a_stranger_cannot_name_our_policy(rival_project: Project, published: Policy) -> None:
    with pytest.raises(PolicyNotFound):
        names(rival_project, str(published.pk))


def test_another_process_publishes_and_this_one_knows_at_once(
    process_environment: dict[str, str], acme: Organization, project: Project
) -> None:
    policy = make_policy(acme, name="theirs")
    assert names(project) == []

    done = subprocess.run(
        [sys.executable, "manage.py", "publish_policy", str(policy.pk), "--mode", "enforcing", "--json"],
        cwd=ROOT,
        env={**process_environment, "DJANGO_SETTINGS_MODULE": "gateway_site.settings"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert names(project) == ["theirs"]
    assert json.loads(done.stdout)["state"] == "enforcing"


def test_a_request_keeps_what_it_began_with(acme: Organization, project: Project, published: Policy) -> None:
    async def run(meanwhile: Callable[[], Any]) -> None:
        policies = await RequestPolicies.attach(project=project, request_id=REQUEST)
        await asyncio.to_thread(meanwhile)
        await policies.check_request([PHRASE])

    def second_version() -> None:
        services.edit_policy(policy=published, revision=2, changes={"rule": "Is it else?"}, actor=SOMEONE)
        services.publish_policy(policy=published, actor=SOMEONE)
        connection.close()

    def pause() -> None:
        services.pause_policy(policy=published, actor=SOMEONE)
        connection.close()

    with pytest.raises(PolicyViolation):
        asyncio.run(run(second_version))
    services.edit_policy(policy=published, revision=4, changes={"rule": QUOTED_AGAIN}, actor=SOMEONE)
    services.publish_policy(policy=published, actor=SOMEONE)
    with pytest.raises(PolicyViolation):
        asyncio.run(run(pause))
    assert names(project) == []


QUOTED_AGAIN = f'Does it say "{PHRASE}"?'


def test_requests_that_come_during_a_read_share_the_next(acme: Organization, monkeypatch: Any) -> None:
    make_published(acme)
    own = PublicationCache()
    reads: list[int] = []
    original = PublicationCache._read

    def counted(self: PublicationCache, wanted: Any) -> Any:
        reads.append(len(wanted))
        return original(self, wanted)

    monkeypatch.setattr(PublicationCache, "_read", counted)

    async def run() -> list[Any]:
        return list(await asyncio.gather(*(own.read(acme.pk) for _ in range(500))))

    try:
        snapshots = asyncio.run(run())
    finally:
        own.close()

    assert {len(snapshot) for snapshot in snapshots} == {1}
    assert len({id(snapshot) for snapshot in snapshots}) == 1
    assert len(reads) < 100


def test_a_lost_connection_is_replaced_and_a_lost_database_is_unavailable(
    acme: Organization, monkeypatch: Any
) -> None:
    make_published(acme)
    own = PublicationCache()
    original = PublicationCache._read
    failures = [1]

    def broken(self: PublicationCache, wanted: Any) -> Any:
        if failures[0]:
            failures[0] -= 1
            connection.close()
            with connection.cursor() as cursor:
                cursor.execute("SELECT nothing FROM nowhere")
        return original(self, wanted)

    monkeypatch.setattr(PublicationCache, "_read", broken)
    try:
        assert len(asyncio.run(asked(own, acme))) == 1
        failures[0] = 2
        with pytest.raises(Unavailable):
            asyncio.run(asked(own, acme))
        assert len(asyncio.run(asked(own, acme))) == 1
    finally:
        own.close()


def test_every_verdict_becomes_a_row_without_the_text(acme: Organization, project: Project) -> None:
    enforcing = make_published(acme, name="enforcing")
    make_published(acme, name="monitoring", mode="monitoring", rule="Is it rude?")

    async def run() -> None:
        policies = await RequestPolicies.attach(project=project, request_id=REQUEST, judge=QuotedJudge())
        try:
            await policies.check_request([f"secret {PHRASE}"])
        finally:
            await background.drain(10)

    with pytest.raises(PolicyViolation):
        asyncio.run(run())
    writer.flush()

    rows = {row.mode: row for row in Verdict.objects.select_related("version")}
    assert rows["enforcing"].version == enforcing.current_version
    assert (rows["enforcing"].outcome, rows["enforcing"].score) == ("match", 1.0)
    assert rows["enforcing"].threshold_basis_points == 5000
    assert rows["monitoring"].outcome == "inconclusive"
    assert rows["monitoring"].reason == "not a question about a quoted phrase"
    for row in rows.values():
        assert (row.project, row.request_id, row.judge, row.direction) == (
            project,
            REQUEST,
            "quoted",
            "request",
        )
        assert PHRASE not in str(row.__dict__)
