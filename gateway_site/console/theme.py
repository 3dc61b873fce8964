"""
How the console looks: the settings of its theme, Unfold. Light or dark is the person's own choice.

The settings import this, so nothing here may need an app to be loaded.
"""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static

from gateway_site.console.navigation import NAVIGATION

# In the page itself, so that there is no file to be missing.
FAVICON = (
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'>"
    "<circle cx='4' cy='4' r='3' fill='%239333ea'/></svg>"
)

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Inference gateway",
    "SITE_HEADER": "Inference gateway",
    "SITE_SYMBOL": "hub",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": FAVICON}],
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "gateway_site.console.overview.views.overview",
    "STYLES": [
        lambda request: static("console/console.css"),
        lambda request: static("console/actions.css"),
        lambda request: static("console/accessible.css"),
    ],
    "SCRIPTS": [lambda request: static("console/accessible.js")],
    "COMMAND": {"search_callback": "gateway_site.console.search.find"},
    "SIDEBAR": {"show_search": True, "command_search": True, "navigation": NAVIGATION},
}
