"""The cost report: parse, read, render."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response

from billing.models import DailyCost
from billing.reports import cost_report, cursor
from billing.reports import query as report_query
from billing.serializers import CostPage
from organization.views import OrganizationViewSet

LIST_FORMS = "Repeated, comma-separated, or as `name[]`."
TIME = {"type": "integer", "minimum": 0, "maximum": report_query.MAX_TIME}
IDS = {"type": "array", "items": {"type": "string", "format": "uuid"}, "maxItems": report_query.MAX_IDS}
PARAMETERS = [
    OpenApiParameter(
        report_query.START,
        TIME,
        required=True,
        description="Unix seconds, inclusive: the report has what was admitted from then on.",
    ),
    OpenApiParameter(
        report_query.END,
        TIME,
        description="Unix seconds, exclusive: the report has what was admitted before."
        " The current time, if not given.",
    ),
    OpenApiParameter(report_query.WIDTH, {"type": "string", "enum": ["1d"], "default": "1d"}),
    OpenApiParameter(report_query.PROJECTS, IDS, description=f"Only costs of these projects. {LIST_FORMS}"),
    OpenApiParameter(report_query.KEYS, IDS, description=f"Only costs of these customer keys. {LIST_FORMS}"),
    OpenApiParameter(
        report_query.GROUPS,
        {
            "type": "array",
            "items": {"type": "string", "enum": list(report_query.DIMENSIONS)},
            "maxItems": len(report_query.DIMENSIONS),
        },
        description=f"One result for each combination. {LIST_FORMS}",
    ),
    OpenApiParameter(
        report_query.PAGE_SIZE,
        {
            "type": "integer",
            "minimum": 1,
            "maximum": report_query.MAX_PAGE_SIZE,
            "default": report_query.DEFAULT_PAGE_SIZE,
        },
        description="The number of buckets. Each is a UTC day, or the part of one that is in the report.",
    ),
    OpenApiParameter(
        report_query.CURSOR,
        {"type": "string", "minLength": 1, "maxLength": cursor.MAX_LENGTH},
        description="`next_page` of the previous page. All other parameters but `limit` must be the same.",
    ),
]


class CostViewSet(OrganizationViewSet):
    required_permissions = {"list": "billing:read"}
    queryset = DailyCost.objects.none()  # for the schema; a report starts at the caller's organization
    serializer_class = CostPage

    @extend_schema(
        tags=["Reports"],
        operation_id="getCosts",
        summary="Report costs",
        responses={200: CostPage},
        parameters=PARAMETERS,
    )
    def list(self, request: Any) -> Response:
        """
        Settled costs by UTC day of admission, in order. Days without any have no results.

        A report that begins or ends within a day has a bucket for that part of it, so adjacent reports add
        up. Usage that is not settled yet is in no result: an amount of `0` is final.
        """
        query = report_query.parse(request.query_params, self.organization)
        return Response(cost_report.report_page(query))
