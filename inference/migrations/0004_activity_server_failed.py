from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('inference', '0003_playground_permission'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='activity',
            index=models.Index(condition=models.Q(('status__gte', 500)), fields=['-ended_at'], name='activity_server_failed'),
        ),
    ]
