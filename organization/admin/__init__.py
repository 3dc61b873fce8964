"""The console's pages of organization: importing this package registers them."""

from organization.admin import audit as audit
from organization.admin import keys as keys
from organization.admin import organizations as organizations
