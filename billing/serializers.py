"""The shape of the cost report, for its readers; the report itself is made as plain values, for speed."""

from __future__ import annotations

from rest_framework import serializers

from gateway_site.api.serializers import Constant


class CostAmount(serializers.Serializer):
    value = serializers.RegexField(
        r"^(0|[1-9][0-9]*)(\.[0-9]{0,8}[1-9])?$",
        help_text="USD as an exact decimal, to nine places. `0` means that the cost is known to be nothing.",
    )
    currency = Constant("usd")


class CostResult(serializers.Serializer):
    object = Constant("organization.costs.result")
    amount = CostAmount()
    line_item = serializers.CharField(allow_null=True, help_text="Null unless grouped by `line_item`.")
    project_id = serializers.UUIDField(allow_null=True, help_text="Null unless grouped by `project_id`.")
    api_key_id = serializers.UUIDField(allow_null=True, help_text="Null unless grouped by `api_key_id`.")


class CostBucket(serializers.Serializer):
    object = Constant("bucket")
    start_time = serializers.IntegerField(
        help_text="The start of a UTC day, or of the report if that is later."
    )
    end_time = serializers.IntegerField(
        help_text="Exclusive: the end of that day, or of the report if that is earlier."
    )
    results = CostResult(many=True, help_text="Empty where no cost of this time is final yet.")


class CostPage(serializers.Serializer):
    object = Constant("page")
    data = CostBucket(many=True)  # type: ignore[assignment]  # the spec's word is DRF's too
    has_more = serializers.BooleanField()
    next_page = serializers.CharField(allow_null=True, help_text="Null on the last page.")
