"""The console's pages that belong to no app."""

from gateway_site import admin_users as admin_users
