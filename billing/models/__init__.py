"""
The books: accounts, grants, caps, reservations, cost lines. LEDGER.md says how they move together.

All amounts are whole nano-USD. Every rule that must hold is a constraint here, whatever the code does.
"""

from billing.models.accounts import Account, CapPeriod, CreditGrant, KeyMeter, SpendingCap
from billing.models.audits import LedgerAudit
from billing.models.corrections import Correction, CostAdjustment
from billing.models.costs import CostLine, DailyCost, UnrolledCost
from billing.models.prices import PriceVersion
from billing.models.reservations import ChargeBasis, EndedBy, Reservation, ReservationState

__all__ = [
    "Account",
    "CapPeriod",
    "ChargeBasis",
    "Correction",
    "CostAdjustment",
    "CostLine",
    "CreditGrant",
    "DailyCost",
    "EndedBy",
    "KeyMeter",
    "LedgerAudit",
    "PriceVersion",
    "Reservation",
    "ReservationState",
    "SpendingCap",
    "UnrolledCost",
]
