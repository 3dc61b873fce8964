"""The console's pages of billing: importing this package registers them."""

from billing.admin import audits as audits
from billing.admin import credit as credit
from billing.admin import ledger as ledger
from billing.admin import limits as limits
