"""Every route of Django's. What is not here is a 404 in the envelope."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularSwaggerView

from billing.admin import costs_page
from gateway_site import health
from gateway_site.api import exception_handler
from gateway_site.api.openapi.view import OpenApiDocumentView
from gateway_site.console import search
from gateway_site.console.live_tail import consumer
from gateway_site.console.login import views
from gateway_site.console.playground import views as playground
from inference.admin import price_sync_page

urlpatterns = [
    path("v1/organization/", include("organization.urls")),
    path("v1/organization/", include("billing.urls")),
    path("v1/organization/", include("policies.urls")),
    path("v1/", include("inference.urls")),
    path("healthz", health.HealthView.as_view({"get": "alive"})),
    path("readyz", health.HealthView.as_view({"get": "ready"})),
    path("openapi.json", OpenApiDocumentView.as_view(), name="openapi"),
    path("docs/", SpectacularSwaggerView.as_view(url_name="openapi"), name="docs"),
    path("admin/costs/", admin.site.admin_view(costs_page.costs), name="costs"),
    path("admin/costs.csv", admin.site.admin_view(costs_page.costs_csv), name="costs-csv"),
    path("admin/prices/", admin.site.admin_view(price_sync_page.page), name="price-sync"),
    path("admin/playground/", include(playground.urls)),
    path("admin/tail/", admin.site.admin_view(consumer.page), name="live-tail"),
    # Ahead of the console's own, which neither counts nor records nor bounds.
    path("admin/login/", views.log_in),
    path("admin/logout/", views.log_out),
    path("admin/password_change/", admin.site.admin_view(views.change_password)),
    path("admin/search/", admin.site.admin_view(search.search)),
    path("admin/", admin.site.urls),
    # A route and not a handler, because DEBUG would put its own page before the handler.
    re_path(r"", exception_handler.not_found),
]
handler400 = "gateway_site.console.error_pages.bad_request"
handler403 = "gateway_site.console.error_pages.permission_denied"
handler404 = "gateway_site.console.error_pages.page_not_found"
handler500 = "gateway_site.console.error_pages.server_error"
