from django.db import migrations

from gateway_site.database.time_index import TimeIndex


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_price_versions")]

    operations = [
        # For reports that begin or end within a day.
        migrations.AddIndex("CostLine", TimeIndex(fields=["admitted_at"], name="cost_line_by_time")),
    ]
