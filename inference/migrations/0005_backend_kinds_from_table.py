"""
A backend's kind is checked against a table in the code, so that a new kind needs no migration.

Rows stay as they are.
"""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('inference', '0004_activity_server_failed'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='backend',
            name='backend_kind_known',
        ),
        migrations.RemoveConstraint(
            model_name='backend',
            name='backend_has_an_address',
        ),
        migrations.AlterField(
            model_name='backend',
            name='kind',
            field=models.CharField(max_length=40),
        ),
    ]
