from django.apps import AppConfig


class GatewaySiteConfig(AppConfig):
    name = "gateway_site"
    label = "gateway_site"

    def ready(self) -> None:
        from gateway_site import checks  # noqa: F401  registers them
