"""The model object, as clients read it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from billing.money import price_text
from billing.prices.card import PriceCard
from billing.prices.parts import PARTS
from gateway_site.api.serializers import Constant, UnixTime
from inference.catalog.services import MODALITIES
from inference.models import CatalogModel

# Unspecified: sampling-limits. Nothing says what would be in it, so nothing is, and that never changes.
SAMPLING_LIMITS: dict[str, Any] = {}
SAMPLING_LIMITS_REVISION = "0"
# Discounts and surcharges on a part come after the parts themselves.
PRICING_ORDER = sorted((part for part in PARTS if part.pricing_key), key=lambda part: bool(part.within))


class ModelAccess(serializers.Serializer):
    required_checks = serializers.ListField(child=serializers.CharField())
    available = serializers.BooleanField()
    locked = serializers.BooleanField()
    missing_requirements = serializers.ListField(child=serializers.CharField())


class ModelPricing(serializers.Serializer):
    """USD per token (per image, per request) as decimal strings."""

    # In the body of a class `locals()` is the namespace that the class is made from.
    locals().update({part.pricing_key: serializers.CharField() for part in PRICING_ORDER})


class ModelResponse(serializers.Serializer):
    id = serializers.CharField()
    object = Constant("model")
    owned_by = serializers.CharField()
    name = serializers.CharField()
    display_name = serializers.CharField()
    access = ModelAccess()
    created = UnixTime()
    input_modalities = serializers.ListField(child=serializers.ChoiceField(MODALITIES))
    output_modalities = serializers.ListField(child=serializers.ChoiceField(MODALITIES))
    pricing = ModelPricing()
    supported_sampling_parameters = serializers.ListField(child=serializers.CharField())
    sampling_limits = serializers.DictField()
    sampling_limits_revision = serializers.CharField()
    supported_features = serializers.ListField(child=serializers.CharField())
    is_ready = serializers.BooleanField(
        help_text="A deployment is enabled whose backend answered when it was last asked."
    )
    quantization = serializers.CharField()
    context_length = serializers.IntegerField()
    max_output_length = serializers.IntegerField()
    # Serializers have attributes of these names; declared fields do not shadow them.
    root = serializers.CharField()  # type: ignore[assignment]
    parent = serializers.CharField(  # type: ignore[assignment]
        help_text="Empty: models here are not derived from one another."
    )


class ModelList(serializers.Serializer):
    object = Constant("list")
    data = ModelResponse(many=True)  # type: ignore[assignment]  # the SDKs' word is DRF's too


def model_object(model: CatalogModel, passed_checks: frozenset[str]) -> dict[str, Any] | None:
    """The model as an organization that passed these checks sees it; None while it has no price."""
    version = model.price_version
    if version is None:
        return None
    missing = sorted(set(model.required_checks) - passed_checks)
    fields = {
        "id": model.pk,
        "owned_by": model.owned_by,
        "name": model.pk,
        "display_name": model.display_name or model.pk,
        "access": {
            "required_checks": model.required_checks,
            "available": not missing,
            "locked": bool(missing),
            "missing_requirements": missing,
        },
        "created": model.created_at,
        "input_modalities": model.input_modalities,
        "output_modalities": model.output_modalities,
        "pricing": _pricing(version.card),
        "supported_sampling_parameters": model.supported_sampling_parameters,
        "sampling_limits": SAMPLING_LIMITS,
        "sampling_limits_revision": SAMPLING_LIMITS_REVISION,
        "supported_features": model.supported_features,
        "is_ready": _is_ready(model),
        "quantization": model.quantization,
        "context_length": model.context_length,
        "max_output_length": model.max_output_length,
        "root": model.pk,
        "parent": "",
    }
    return dict(ModelResponse(fields).data)


def _pricing(card: PriceCard) -> dict[str, str]:
    # Of a request with a short prompt: the shape that clients know has no tiers.
    price = card.price_for(0)
    return {part.pricing_key: price_text(getattr(price, part.name)) for part in PRICING_ORDER}


def _is_ready(model: CatalogModel) -> bool:
    deployments = model.live_deployments  # type: ignore[attr-defined]
    return any(not deployment.backend.probe_problem for deployment in deployments)
