"""Receipts as people with different permissions read them in the console."""

from __future__ import annotations

from django.test import Client

from inference.models import Activity
from tests.inference.activity.factories import receipt_address

MONEY = ("billing.view_reservation", "billing.view_costline")
HOSTILE = "<script>alert(1)</script>"


def read(client: Client, request: Activity) -> str:
    answer = client.get(receipt_address(request))
    assert answer.status_code == 200
    return str(answer.content.decode())
