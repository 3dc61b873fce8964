"""Records of requests, as the writer would have left them."""

from __future__ import annotations

import time
import uuid
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone

from gateway_site.database.row_writer import RowWriter
from inference.activity import writer as activity_writer
from inference.activity.trace import RequestTrace
from inference.models import Activity
from organization.models import ProjectKey

LIST = reverse("admin:inference_activity_changelist")


def make_request(key: ProjectKey, *, ago: timedelta = timedelta(minutes=1), **fields: Any) -> Activity:
    ended: datetime = timezone.now() - ago
    return Activity.objects.create(
        **{
            "id": uuid.uuid4(),
            "created_at": ended - timedelta(seconds=2),
            "ended_at": ended,
            "organization_id": key.project.organization_id,
            "project_id": key.project_id,
            "api_key_id": key.pk,
            "endpoint": "/v1/chat/completions",
            "model": "llama",
            "status": 200,
            "total_ms": 2_000,
            **fields,
        }
    )


def receipt_address(request: Activity) -> str:
    return reverse("admin:inference_activity_change", args=[request.pk])


def trace(key: ProjectKey) -> RequestTrace:
    ended = RequestTrace(key, "/v1/chat/completions", id=uuid.uuid4())
    ended.ended = time.monotonic()
    return ended


def new_writer() -> RowWriter[RequestTrace]:
    return RowWriter("activity", activity_writer.insert_activity)
