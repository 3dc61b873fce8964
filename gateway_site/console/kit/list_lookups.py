"""Which query parameters a list of the console takes: those that its filters declare, and no other lookup."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import get_fields_from_path
from django.db.models import Model

# What people search for: a name, an id, a few words of either.
MOST_SEARCH_CHARACTERS = 200
MOST_SEARCH_WORDS = 10


def parameters_of(list_filter: Iterable[Any], model: type[Model]) -> frozenset[str]:
    """
    The parameters that these filters read, as their `expected_parameters` would say.

    Told from the declarations alone: to make a filter can take a query, and a lookup that is refused must not
    reach the database.
    """
    return frozenset(name for declared in list_filter for name in _parameters_of_one(declared, model))


def _parameters_of_one(declared: Any, model: type[Model]) -> Iterable[str]:
    if isinstance(declared, type):
        name = getattr(declared, "parameter_name", None)
        return [name] if name else getattr(declared, "parameters", ())
    path, kind = declared if isinstance(declared, tuple | list) else (declared, admin.FieldListFilter)
    if hasattr(kind, "parameters_for"):
        return list(kind.parameters_for(path))
    if issubclass(kind, admin.EmptyFieldListFilter):
        return [f"{path}__isempty"]
    field: Any = get_fields_from_path(model, path)[-1]
    if field.is_relation:
        return [f"{path}__{field.target_field.name}__exact", f"{path}__isnull"]
    return [f"{path}__exact", f"{path}__isnull"]


def is_searchable(text: str) -> bool:
    """Whether a search is one that people type: each word is one more condition on every searched column."""
    return len(text) <= MOST_SEARCH_CHARACTERS and len(text.split()) <= MOST_SEARCH_WORDS
