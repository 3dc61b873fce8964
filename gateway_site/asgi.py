"""The ASGI application: request id, then request limits, then whoever serves the path."""

from __future__ import annotations

import os
from typing import Any

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_site.settings")
django_application = get_asgi_application()

from django.conf import settings  # noqa: E402
from servestatic import ServeStaticASGI  # noqa: E402

from gateway_site.api.https_only import HttpsOnlyMiddleware  # noqa: E402
from gateway_site.api.request_id import RequestIdMiddleware  # noqa: E402
from gateway_site.api.request_limits import RequestLimitsMiddleware  # noqa: E402
from gateway_site.console.content_security import add_static_headers  # noqa: E402
from gateway_site.console.live_tail.consumer import sockets  # noqa: E402
from gateway_site.lifespan import Lifespan  # noqa: E402
from inference.serving.routing import PathRouter  # noqa: E402

# Generation ahead of Django, whose middleware knows nothing of streams; everything else to Django.
gateway: Any = PathRouter(otherwise=django_application)
if settings.GATEWAY_HTTPS:
    gateway = HttpsOnlyMiddleware(gateway)
if settings.STATIC_ROOT.is_dir():
    # Files with hashed names, found once at start; every other path goes on to the gateway.
    gateway = ServeStaticASGI(
        gateway, root=str(settings.STATIC_ROOT), prefix="static", add_headers_function=add_static_headers
    )
application = ProtocolTypeRouter(
    {
        "http": RequestIdMiddleware(RequestLimitsMiddleware(gateway)),
        "websocket": sockets,
        "lifespan": Lifespan(),
    }
)
