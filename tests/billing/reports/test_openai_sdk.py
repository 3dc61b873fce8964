"""The real OpenAI SDK reads the report from a running server, while costs are rolled up."""

from __future__ import annotations

from datetime import UTC, datetime

import openai
import pytest
from openai import OpenAI

from billing import tasks
from billing.models import DailyCost
from tests.billing.factories import make_customer
from tests.billing.settled_requests import DAY, FIRST, Usage, after, midnight, settle
from tests.factories import make_admin_key
from tests.harness.live_server import live_server

pytestmark = pytest.mark.django_db(transaction=True)
START = midnight(FIRST)


def test_an_administrator_reads_costs(process_environment: dict[str, str]) -> None:
    ours = make_customer(credit=10**12)
    other = ours.another_key()
    settle(*(Usage(each, after(day), 1_500_000, 500_000) for each in (ours, other) for day in (0, 2)))
    key = make_admin_key(ours.organization).value
    with live_server(process_environment, has_scheduled_work=True) as running:
        client = OpenAI(
            base_url=f"{running.address}/v1",
            api_key="unused",
            admin_api_key=key,
            max_retries=0,
            _strict_response_validation=True,
        )
        costs = client.admin.organization.usage.costs

        plain = costs(start_time=START, end_time=START + 3 * DAY, bucket_width="1d")
        assert [[r.amount.value for r in bucket.results] for bucket in plain.data] == [[0.004], [], [0.004]]  # type: ignore[union-attr]

        narrow = costs(
            start_time=START,
            end_time=START + 3 * DAY,
            project_ids=[str(ours.project.pk)],
            api_key_ids=[str(ours.key.pk), str(other.key.pk)],
            group_by=["line_item", "api_key_id"],
            limit=1,
        )
        assert len(narrow.data[0].results) == 4
        assert narrow.has_more
        assert narrow.next_page
        assert {each.line_item for each in narrow.data[0].results} == {"gpt, prompt", "gpt, completion"}  # type: ignore[union-attr]

        # Three deliveries of the same work, beside the worker of the server.
        for _ in range(3):
            tasks.roll_up_costs.delay()
        assert DailyCost.objects.count() == 8
        assert costs(start_time=START, end_time=START + 3 * DAY, bucket_width="1d") == plain

        with pytest.raises(openai.BadRequestError) as refused:
            costs(start_time=START, end_time=START + 3 * DAY, page=narrow.next_page)
        assert refused.value.param == "page"
        assert costs(start_time=int(datetime.now(UTC).timestamp()) - DAY).next_page is None
