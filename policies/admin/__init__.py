"""The console's pages of policies: importing this package registers them."""

from policies.admin import evidence as evidence
from policies.admin import policies as policies
