"""The console's pages of billing: importing this package registers them."""

from billing.admin import corrections as corrections
from billing.admin import credit as credit
from billing.admin import ledger as ledger
from billing.admin import ledger_audits as ledger_audits
from billing.admin import price_versions as price_versions
from billing.admin import spending_limits as spending_limits
