import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_site.settings")

app = Celery("gateway_site", include=["gateway_site.server.schedule"])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
