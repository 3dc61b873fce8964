"""The console's page for what audits of the ledger found."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from billing.models import LedgerAudit
from gateway_site.console.kit.model_admin import ReadOnlyAdmin, display
from gateway_site.console.kit.timestamps import timestamp


@admin.register(LedgerAudit)
class LedgerAuditAdmin(ReadOnlyAdmin):
    """Every check of the books, newest first. `manage.py audit_ledger` makes one at once."""

    about = "Every check of the books: whether credit, holds, limits and costs still agree to the last digit."
    first_step = "They are checked every few hours, and whenever you use this command."
    first_command = "python manage.py audit_ledger"
    list_display = ["finished", "result", "what_is_broken", "took"]
    fields = readonly_fields = ["finished", "result", "took", "details"]
    ordering = ["-id"]

    @display(description="Finished", ordering="id")
    def finished(self, audit: LedgerAudit) -> SafeString:
        return timestamp(audit.finished_at)

    @display(description="Result", label={"sound": "success", "broken": "danger"})
    def result(self, audit: LedgerAudit) -> str:
        return "broken" if audit.broken else "sound"

    @display(description="Broken invariants")
    def what_is_broken(self, audit: LedgerAudit) -> str:
        return ", ".join(str(each["name"]) for each in audit.findings)

    @display(description="Duration", ordering="seconds")
    def took(self, audit: LedgerAudit) -> str:
        return f"{audit.seconds:.3f} s"

    @display(description="Findings")
    def details(self, audit: LedgerAudit) -> SafeString:
        if not audit.findings:
            return format_html("<p>{}</p>", "Every invariant holds.")
        rows = (
            (each["name"], each["meaning"], each["count"], "; ".join(map(str, each["examples"])))
            for each in audit.findings
        )
        shape = "<li><strong>{}</strong><p>{}</p><p>Rows: {}. For example: <code>{}</code></p></li>"
        return format_html('<ul class="gw-findings">{}</ul>', format_html_join("", shape, rows))
