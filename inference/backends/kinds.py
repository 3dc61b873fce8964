"""
The kinds of backends that operators can add, and all that the rest of the product needs to know of each.

A new kind is one package beside this file and one row in KINDS. The console's form, `add_backend`, the
services and the registry read the table; nothing else names a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from django.conf import settings

from gateway_site.http_client.client import Client
from gateway_site.http_client.ssrf_guard import BaseUrl
from inference import tokenizer
from inference.backends.anthropic.backend import AnthropicBackend
from inference.backends.anthropic.request import Thinking
from inference.backends.base import InferenceBackend
from inference.backends.http_backend import HttpBackend
from inference.backends.openai_chat.backend import OpenAIBackend
from inference.backends.openai_chat.request import SERVERS
from inference.backends.openai_responses.backend import OpenAIResponsesBackend
from inference.backends.simulator.backend import SimulatorBackend

SIMULATOR_VOCABULARY = "o200k_base"


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """A backend's row as the maker of its kind gets it: the address checked, the credential decrypted."""

    client: Client
    name: str
    base_url: BaseUrl
    api_key: str = field(repr=False)
    # Only those that the kind has.
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BackendOption:
    """
    One setting of a backend beside its address and key: a choice, a list of names, or a text.

    Kept in the row's `options` under `name`; one that nobody gave is not kept there.
    """

    name: str
    label: str
    help: str
    choices: tuple[str, ...] = ()
    default: str = ""
    is_list: bool = False

    def check(self, value: object) -> None:
        """Raise ValueError, in words for an operator, for a value that this option cannot have."""
        if self.is_list:
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                raise ValueError(f"{self.name} must be a list of names.")
        elif self.choices:
            if value not in self.choices:
                raise ValueError(f"The {self.name} must be one of {', '.join(self.choices)}.")
        elif not isinstance(value, str):
            raise ValueError(f"The {self.name} must be a text.")


@dataclass(frozen=True, slots=True)
class BackendKind:
    """One row of KINDS: how a kind is called, made, configured and added."""

    label: str
    make: Callable[[BackendConfig], InferenceBackend]
    options: tuple[BackendOption, ...] = ()
    has_address: bool = True
    has_credential: bool = True
    # Whether its `list_models` has anything to import into the catalog.
    has_model_list: bool = True
    # What `add_backend` takes where no address is given, and, only together with that, for the API key: a key
    # must not go to whatever host was named.
    default_base_url: Callable[[], str] | None = None
    default_key_variable: str = ""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError, in words for an operator, for options that a backend of this kind cannot have."""
        known = {option.name: option for option in self.options}
        for name in sorted(options):
            if name not in known:
                raise ValueError(f"A backend of this kind has no option {name!r}.")
            known[name].check(options[name])


def _http_backend(backend_class: type[HttpBackend], config: BackendConfig, **options: Any) -> HttpBackend:
    options["lacks"] = frozenset(options.get("lacks", ()))
    return backend_class(
        config.client, name=config.name, base_url=config.base_url, api_key=config.api_key, **options
    )


def _openai(config: BackendConfig) -> InferenceBackend:
    options = dict(config.options)
    is_responses = options.pop("api", "chat") == "responses"
    return _http_backend(OpenAIResponsesBackend if is_responses else OpenAIBackend, config, **options)


def _anthropic(config: BackendConfig) -> InferenceBackend:
    return _http_backend(AnthropicBackend, config, **config.options)


def _simulator(config: BackendConfig) -> InferenceBackend:
    return SimulatorBackend(tokenizer.counter(SIMULATOR_VOCABULARY))


_LACKS = BackendOption(
    "lacks",
    label="Unsupported options",
    help="Request options that this server does not implement beyond what is known of its kind, such as "
    "seed. A request that uses one is answered with 501.",
    is_list=True,
)

KINDS: dict[str, BackendKind] = {
    "openai": BackendKind(
        label="OpenAI-compatible",
        make=_openai,
        options=(
            BackendOption(
                "server",
                label="Server",
                help="What an openai backend really is: servers differ in what they support.",
                choices=tuple(SERVERS),
                default="other",
            ),
            BackendOption(
                "api",
                label="API",
                help="Which API an openai backend is asked through.",
                choices=("chat", "responses"),
                default="chat",
            ),
            _LACKS,
        ),
        # Where nothing else is said, it is the backend that the SDKs' own variables name.
        default_base_url=lambda: str(settings.OPENAI_BASE_URL),
        default_key_variable="OPENAI_API_KEY",
    ),
    "anthropic": BackendKind(
        label="Anthropic Messages",
        make=_anthropic,
        options=(
            BackendOption(
                "thinking",
                label="Thinking",
                help="How thinking is requested of an anthropic backend: with a budget of tokens, or by "
                "effort alone.",
                choices=get_args(Thinking),
                default="budget",
            ),
            _LACKS,
        ),
    ),
    "simulator": BackendKind(
        label="Simulator", make=_simulator, has_address=False, has_credential=False, has_model_list=False
    ),
}


def label_of(kind: str) -> str:
    """What people call a kind; its bare name if the table does not have it (any more)."""
    return KINDS[kind].label if kind in KINDS else kind


def all_options() -> dict[str, BackendOption]:
    """Every option of every kind by its name. Kinds that share a name share the option, with all choices."""
    found: dict[str, BackendOption] = {}
    for option in (option for kind in KINDS.values() for option in kind.options):
        known = found.get(option.name, option)
        choices = tuple(dict.fromkeys((*known.choices, *option.choices)))
        found[option.name] = replace(known, choices=choices)
    return found


def kinds_with_option(name: str) -> list[str]:
    """The kinds that have an option of this name, in the order of the table."""
    return [kind for kind, row in KINDS.items() if any(option.name == name for option in row.options)]
