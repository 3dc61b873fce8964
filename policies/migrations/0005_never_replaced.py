from django.db import migrations

from gateway_site.database.append_only import NeverReplaced


class Migration(migrations.Migration):
    dependencies = [("policies", "0004_words_of_the_console")]

    operations = [NeverReplaced("PolicyVersion")]
