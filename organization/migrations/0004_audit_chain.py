from django.db import migrations, models

from gateway_site.database.append_only import AppendOnly, NeverReplaced


class Migration(migrations.Migration):
    dependencies = [("organization", "0003_words_of_the_console")]

    operations = [
        migrations.CreateModel(
            name="AuditChainHead",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("number", models.BigIntegerField()),
                ("digest", models.CharField(max_length=64)),
                ("key_id", models.CharField(max_length=16)),
                ("signature", models.CharField(max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("event_id", models.BigIntegerField(unique=True)),
                ("digest", models.CharField(max_length=64)),
                ("key_id", models.CharField(max_length=16)),
                ("signature", models.CharField(max_length=64)),
            ],
        ),
        migrations.AddField(
            model_name="auditevent",
            name="seal",
            field=models.CharField(editable=False, max_length=80, null=True),
        ),
        migrations.AddConstraint(
            model_name="auditevent",
            constraint=models.UniqueConstraint(
                condition=models.Q(("seal__isnull", False)), fields=("seal",), name="audit_seal_used_once"
            ),
        ),
        # After the constraint: what must be unique is what a row could be replaced by.
        NeverReplaced("AuditEvent"),
        AppendOnly("AuditLink"),
        NeverReplaced("AuditLink"),
    ]
