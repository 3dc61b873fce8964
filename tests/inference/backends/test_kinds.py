"""The table of kinds: what each row promises, and that nothing beside it knows a kind."""

from __future__ import annotations

import ast
from typing import Any, get_args

import pytest

from gateway_site.api.errors import InvalidRequest
from gateway_site.http_client.client import Client
from inference.admin.backend_form import field_name, option_fields
from inference.backends import registry
from inference.backends.base import InferenceBackend
from inference.backends.kinds import KINDS, BackendConfig, all_options
from inference.models import Backend
from inference.prompt import Option
from tests.harness.sources import PACKAGES, ROOT, modules
from tests.inference.catalog.factories import make_backend

ADDRESS = "http://10.0.0.5:8000/v1"
BACKENDS = ROOT / "inference" / "backends"


def config(**options: Any) -> BackendConfig:
    return BackendConfig(
        client=Client(),
        name="x",
        base_url=registry.parse_base_url(ADDRESS),
        api_key="",
        options=options,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_made_with_and_without_its_options(kind: str) -> None:
    row = KINDS[kind]
    given = {option.name: ["seed"] if option.is_list else (*option.choices, "x")[0] for option in row.options}

    for options in ({}, given):
        made: InferenceBackend = row.make(config(**options))
        assert made.lacks - set(get_args(Option)) == set()
    Backend._meta.get_field("kind").run_validators(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_has_a_form_field_and_a_default_that_it_takes(kind: str) -> None:
    for option in KINDS[kind].options:
        assert field_name(option.name) in option_fields()
        shared = all_options()[option.name]
        assert (shared.is_list, shared.default) == (option.is_list, option.default)
        assert set(option.choices) <= set(shared.choices)
        assert option.help
        if option.choices:
            option.check(option.default)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"server": "abacus"}, "The server must be one of openai, vllm"),
        ({"server": ["vllm"]}, "The server must be one of"),
        ({"colour": "red"}, "A backend of this kind has no option 'colour'."),
        ({"thinking": "budget"}, "A backend of this kind has no option 'thinking'."),
        ({"lacks": "seed"}, "lacks must be a list of names."),
        ({"lacks": [1]}, "lacks must be a list of names."),
    ],
)
def test_options_that_cannot_be_are_refused_by_the_service(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        make_backend("vllm", "openai", base_url=ADDRESS, options=options)

    assert not Backend.objects.exists()


@pytest.mark.django_db
def test_a_kind_that_is_not_in_the_table_is_refused_by_the_service() -> None:
    with pytest.raises(InvalidRequest, match="The kind must be one of openai, anthropic, simulator"):
        make_backend("x", "abacus")


def class_names() -> set[str]:
    """The classes that implement InferenceBackend, with those between."""
    found, left = set(), [InferenceBackend]
    while left:
        subclasses = left.pop().__subclasses__()
        found |= {one.__name__ for one in subclasses if one.__module__.startswith("inference.")}
        left += subclasses
    return found


@pytest.mark.slow
def test_no_module_asks_which_class_a_backend_is() -> None:
    classes = class_names()
    assert {"OpenAIBackend", "AnthropicBackend", "SimulatorBackend"} <= classes

    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for room in PACKAGES
        for path in modules(room)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute) and _name(node) in classes
        if not (path.is_relative_to(BACKENDS) and (path.parent != BACKENDS or path.name in TABLE))
    ]

    assert found == []


# Which names the classes, and the base class that they share.
TABLE = ("kinds.py", "http_backend.py")


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def test_no_module_asks_which_kind_a_backend_is() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in modules("inference")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        for side in ast.walk(node)
        if isinstance(side, ast.Constant) and side.value in KINDS and "kind" in ast.unparse(node)
    ]

    assert found == []
