"""What was found when the books were checked."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class LedgerAudit(models.Model):
    """One check of every invariant: what the console's banner reads, since the check itself reads it all."""

    id = models.BigAutoField(primary_key=True)
    finished_at = models.DateTimeField(default=timezone.now)
    seconds = models.FloatField()
    # Invariants that do not hold.
    broken = models.IntegerField()
    # Of each broken one: {"name", "meaning", "count", "examples"}.
    findings = models.JSONField(default=list)

    class Meta:
        ordering = ["-id"]
        verbose_name = "ledger audit"

    def __str__(self) -> str:
        return "sound" if not self.broken else f"{self.broken} broken"
