from django.db import migrations

from gateway_site.database.append_only import AppendOnly


class Migration(migrations.Migration):
    dependencies = [("policies", "0001_initial")]

    operations = [AppendOnly("PolicyVersion")]
