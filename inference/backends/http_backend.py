"""What the backends that speak HTTP share: the address, the credential, the client, the headers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import InitVar, dataclass, field

from gateway_site.http_client.client import Client, UpstreamRequest
from gateway_site.http_client.ssrf_guard import BaseUrl
from inference.backends.base import InferenceBackend
from inference.backends.credentials import checked_credential
from inference.backends.model_list import UpstreamModel, fetch_model_list
from inference.backends.usage import Alert, log_alert


@dataclass(repr=False, eq=False, kw_only=True)
class HttpBackend(InferenceBackend):
    """
    One address with its credential. A subclass adds its options as fields, and says the paths and headers.

    `lacks` are options that this deployment is known not to have beyond what its kind has not.
    """

    client: Client = field(kw_only=False)
    name: str
    base_url: BaseUrl
    api_key: str = ""
    lacks: frozenset[str] = frozenset()
    alert: InitVar[Alert | None] = None

    def __post_init__(self, alert: Alert | None) -> None:
        checked_credential(self.api_key)
        self._alert = alert or log_alert(self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    @abstractmethod
    def models_url(self) -> str:
        """The address of the backend's own list of models."""

    @abstractmethod
    def credential_headers(self) -> dict[str, str]:
        """The headers by which the backend knows who asks. They go out with every request."""

    async def list_models(self) -> list[UpstreamModel]:
        return await fetch_model_list(self.models_url, self.credential_headers())

    def request(
        self, url: str, headers: dict[str, str], body: bytes, max_stream_bytes: int
    ) -> UpstreamRequest:
        """A POST to this backend, marked with its name and with the credential to redact."""
        return UpstreamRequest(
            url=url,
            body=body,
            headers=headers,
            credential=self.api_key,
            backend=self.name,
            max_stream_bytes=max_stream_bytes,
        )
