"""Requests that a published policy refuses, on every endpoint."""

from __future__ import annotations

import json
from typing import Any

from organization.models import Organization
from policies import services
from policies.models import Policy
from tests.factories import SOMEONE
from tests.harness.client import Answer, exchange
from tests.inference.customer import ApiCustomer, closing_application
from tests.policies.factories import RULE

SAID = f"this is internal only, friend. {'And more. ' * 50}"
USER = {"role": "user", "content": "hello"}


def publish(organization: Organization, **fields: Any) -> Policy:
    options = {"name": "Internal", "rule": RULE, "mode": "enforcing", **fields}
    policy = services.create_policy(organization=organization, actor=SOMEONE, **options)
    return services.publish_policy(policy=policy, actor=SOMEONE)


def ask(customer: ApiCustomer, endpoint: str, **fields: Any) -> Answer:
    body = json.dumps({"model": "echo", **fields}).encode()
    headers = [
        ("Authorization", f"Bearer {customer.value}"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
    ]
    return exchange("POST", endpoint, headers, [body], application=closing_application)
