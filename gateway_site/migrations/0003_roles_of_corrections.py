from django.apps import apps as todays_apps
from django.contrib.auth.management import create_permissions
from django.db import migrations

from gateway_site.console import roles


def give_permissions(apps, schema_editor):
    # Django makes permissions when all migrations are done, which is too late for giving them to groups.
    for config in todays_apps.get_app_configs():
        if config.models_module is not None and config.label in apps.app_configs:
            create_permissions(config, apps=apps, verbosity=0)
    roles.apply(apps)


class Migration(migrations.Migration):
    dependencies = [
        ("gateway_site", "0002_playground_keys"),
        ("billing", "0008_corrections"),
    ]
    # People may be in the groups; they stay.
    operations = [migrations.RunPython(give_permissions, migrations.RunPython.noop)]
