from typing import Any

from django.db import migrations

from organization.audit import chain


def link(apps: Any, schema_editor: Any) -> None:
    """Events that are older than the chain, in batches: what is interrupted goes on where it stopped."""
    models = [apps.get_model("organization", name) for name in ("AuditEvent", "AuditLink", "AuditChainHead")]
    tables = chain.ChainModels(*models)
    tables.begin()
    chain.link_new_events(models=tables, is_first=True)


class Migration(migrations.Migration):
    # Each batch commits.
    atomic = False
    dependencies = [("organization", "0004_audit_chain")]

    operations = [migrations.RunPython(link, migrations.RunPython.noop)]
