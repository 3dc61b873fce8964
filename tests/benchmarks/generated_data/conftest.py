"""Generated rows obey the ledger's invariants, as real ones do."""

from tests.billing.conftest import _books_balance as _books_balance
