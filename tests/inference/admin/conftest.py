"""The console's fixtures, for the pages of inference."""

from tests.gateway_site.console.conftest import console as console
from tests.gateway_site.console.conftest import samples as samples
