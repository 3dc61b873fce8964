"""The console's fixtures, and the organization `acme` instead of the ledger's customer of that name."""

from tests.conftest import acme as acme
from tests.gateway_site.console.conftest import console as console
from tests.gateway_site.console.conftest import samples as samples
