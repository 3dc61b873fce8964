from __future__ import annotations

from django.conf import settings
from django.db import models

from organization.models import ProjectKey


class PlaygroundKey(models.Model):
    """The person who has a playground's key, which ends with their session, role or password."""

    key = models.OneToOneField(ProjectKey, models.CASCADE, primary_key=True, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")

    def __str__(self) -> str:
        return f"{self.key_id} of {self.user_id}"
