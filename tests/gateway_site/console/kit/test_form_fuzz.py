"""Nonsense that is posted to the console is refused, and never a failure of ours."""

from __future__ import annotations

import pytest

from tests.gateway_site.console.clients import owner
from tests.gateway_site.console.factories import SampleRows, every_action, form_of, list_url

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
# Not ids of anything: neither of a UUID's shape nor within a column's range.
NO_IDS = ["", "x" * 100_000, "9" * 400, "-1", "9999-99-99", "<script>'\"{{7*7}}", "\ufffe\U0010ffff"]


@pytest.mark.parametrize("no_id", NO_IDS, ids=lambda each: ascii(each[:12]))
def test_an_action_on_an_id_that_no_row_can_have_is_refused(samples: SampleRows, no_id: str) -> None:
    client = owner()
    client.raise_request_exception = False
    for model, action in every_action():
        sent = {"action": action.name, "_selected_action": no_id, **form_of(action)}
        answer = client.post(list_url(model), sent)
        assert answer.status_code in (302, 400), (model, action.name, answer.status_code)
