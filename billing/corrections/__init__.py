"""Corrections: charging a period's requests again under another price card, by entries that are added."""

from billing.corrections.history import ChargeRevision, history_of

__all__ = ["ChargeRevision", "history_of"]
