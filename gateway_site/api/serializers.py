"""
Bodies of organization routes, read strictly.

DRF turns "5" into 5, 1 into True and 123 into "123", trims strings and drops unknown fields. A caller
whose typing mistake is repaired in silence finds out later, from the bill.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.validators import RegexValidator
from drf_spectacular.drainage import set_override
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway_site.api.bodies.strict_json import MAX_NAME_LENGTH, printable


class StrictSerializer(serializers.Serializer):
    """Refuses fields that it does not declare."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and (unknown := data.keys() - self.fields.keys()):
            name = printable(min(unknown)[:MAX_NAME_LENGTH])
            raise serializers.ValidationError({name: ["This field is not accepted."]})
        return super().to_internal_value(data)


class StrictString(serializers.CharField):
    """A JSON string that is not blank, kept as it was sent."""

    def __init__(self, **options: Any) -> None:
        # The pattern is for the document's readers as much as for us; the parser refuses NUL before.
        not_blank = RegexValidator(r"^[^\x00]*[^\s\x00][^\x00]*$", "This must not be blank.")
        super().__init__(trim_whitespace=False, validators=[not_blank], **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("This must be a string.")
        return data

    def run_validation(self, data: Any = serializers.empty) -> Any:
        # Past DRF's own check of blank strings, which says so in other words.
        return serializers.Field.run_validation(self, data)


@extend_schema_field(OpenApiTypes.INT64)
class UnixTime(serializers.Field):
    """A moment, as whole seconds since 1970."""

    def __init__(self, **options: Any) -> None:
        super().__init__(read_only=True, **options)

    def to_representation(self, value: datetime) -> int:
        return int(value.timestamp())


class Constant(serializers.CharField):
    """A field that always says the same word, such as `object`."""

    def __init__(self, word: str) -> None:
        self.word = word
        super().__init__(read_only=True)
        set_override(self, "field", {"type": "string", "const": word})

    def get_attribute(self, instance: Any) -> str:
        return self.word

    def to_representation(self, value: Any) -> str:
        return self.word
