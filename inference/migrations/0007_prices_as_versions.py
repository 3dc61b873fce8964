import hashlib
import json
from typing import Any

from django.db import migrations
from django.utils import timezone

PRICES = ("prompt", "completion", "cached", "image", "request")


def add_versions(apps: Any, schema_editor: Any) -> None:
    """A version of the price that each model has, from now on."""
    versions = apps.get_model("billing", "PriceVersion").objects
    now = timezone.now()
    for model in apps.get_model("inference", "CatalogModel").objects.order_by("pk"):
        prices = {name: getattr(model, f"{name}_price_picousd") for name in PRICES}
        if None in prices.values():
            continue
        card = flat_card(prices)
        versions.create(
            model=model.pk,
            valid_from=now,
            source="prices of an earlier release",
            checksum=hashlib.sha256(
                json.dumps(card, sort_keys=True, separators=(",", ":")).encode()
            ).hexdigest(),
            card_json=card,
        )


def flat_card(prices: dict[str, int]) -> dict[str, Any]:
    """A card of these prices. Those that were filled in where nobody had given one are left out."""
    given = dict(prices)
    if given["cached"] == given["prompt"]:
        del given["cached"]
    for name in ("image", "request"):
        if not given[name]:
            del given[name]
    return {"rates": {name: {"picousd": picousd} for name, picousd in sorted(given.items())}}


class Migration(migrations.Migration):
    dependencies = [("inference", "0006_tokenizer_never_blank"), ("billing", "0006_price_versions")]

    operations = [
        migrations.RunPython(add_versions, migrations.RunPython.noop),
        migrations.RemoveConstraint("catalogmodel", "model_prices_not_negative"),
        *(migrations.RemoveField("catalogmodel", f"{name}_price_picousd") for name in PRICES),
    ]
