"""
Every model has a vocabulary: those without one get that of their family, by what their backends call them.

What an operator named is taken to be exact, as it was until now.
"""

from typing import Any

from django.db import migrations, models

# As it is when the migration runs: a later table knows more families, and any choice can be changed.
from inference.catalog.vocabularies import choose_vocabulary


def name_vocabularies(apps: Any, schema_editor: Any) -> None:
    rows = apps.get_model("inference", "CatalogModel").objects
    rows.exclude(tokenizer="").update(is_tokenizer_exact=True)
    for model in rows.filter(tokenizer="").prefetch_related("deployments"):
        upstream_ids = [deployment.upstream_id for deployment in model.deployments.order_by("pk")]
        choice = choose_vocabulary(model.pk, upstream_ids)
        rows.filter(pk=model.pk).update(tokenizer=choice.name, is_tokenizer_exact=choice.is_exact)


class Migration(migrations.Migration):

    dependencies = [
        ('inference', '0005_backend_kinds_from_table'),
    ]

    operations = [
        migrations.AddField(
            model_name='catalogmodel',
            name='is_tokenizer_exact',
            field=models.BooleanField(default=False, verbose_name='tokenizer is exact'),
        ),
        migrations.RunPython(name_vocabularies, migrations.RunPython.noop),
        migrations.AlterField(
            model_name='catalogmodel',
            name='tokenizer',
            field=models.CharField(default='o200k_base', max_length=40),
        ),
        migrations.AddConstraint(
            model_name='catalogmodel',
            constraint=models.CheckConstraint(condition=models.Q(('tokenizer', ''), _negated=True), name='model_tokenizer_not_empty'),
        ),
    ]
