"""The pages of the console that belong to no app: importing this module registers them."""

from gateway_site.console import user_admin as user_admin
