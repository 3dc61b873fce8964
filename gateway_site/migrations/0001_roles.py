from django.apps import apps as todays_apps
from django.contrib.auth.management import create_permissions
from django.db import migrations

from gateway_site.console import roles


def make_groups(apps, schema_editor):
    # Django makes permissions when all migrations are done, which is too late for giving them to groups.
    for config in todays_apps.get_app_configs():
        if config.models_module is not None and config.label in apps.app_configs:
            create_permissions(config, apps=apps, verbosity=0)
    roles.apply(apps)


class Migration(migrations.Migration):
    dependencies = [
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("sessions", "0001_initial"),
        ("organization", "0002_audit_append_only"),
        ("billing", "0003_ledger_audit"),
        ("policies", "0003_daily_verdicts"),
        ("inference", "0003_playground_permission"),
    ]
    # People may be in the groups; they stay.
    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop)]
