"""How the console's list of requests is narrowed, and how the list is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

from gateway_site.console.kit.model_admin import AutocompleteFilter, Select, TextInput
from inference.activity import search
from inference.activity.search import FAILED, OK, REFUSED
from inference.models import Activity, CatalogModel

TIMES = [("1h", "1 h"), ("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d"), ("", "All")]
STATUSES = [("", "All"), (OK, "OK"), (REFUSED, "Refused (4xx)"), (FAILED, "Failed (5xx)")]
MOST_SUGGESTIONS = 1_000
# An address may ask nothing else of this table: any other lookup would read all of it.
PARAMETERS = {
    "organization__id__exact",
    "project__id__exact",
    "api_key__id__exact",
    "model",
    "status",
    "when",
    "from",
    "to",
}


class ParameterFilter(admin.ListFilter, ABC):
    """Takes its parameters from the address and shows their fields. `search` knows what they mean."""

    template = "unfold/filters/filters_field.html"
    parameters: ClassVar[tuple[str, ...]]

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, page: Any) -> None:
        super().__init__(request, params, model, page)
        for name in self.parameters:
            if name in params:
                self.used_parameters[name] = params.pop(name)[-1]

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [*self.parameters]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Activity]) -> QuerySet[Activity]:
        return queryset

    @abstractmethod
    def fields(self) -> dict[str, forms.Field]:
        """The form fields of this filter, by parameter."""

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        form = forms.Form(self.used_parameters, auto_id="filter_%s")
        form.fields.update(self.fields())
        yield {"form": form}


class TimeFilter(ParameterFilter):
    title = "time"
    parameters = ("when", "from", "to")

    def fields(self) -> dict[str, forms.Field]:
        exactly = {"type": "datetime-local", "step": "1"}
        return {
            "when": forms.ChoiceField(
                label="Ended in the last",
                required=False,
                choices=[("", "any time"), *TIMES[:-1]],
                widget=Select,
            ),
            "from": forms.CharField(label="or from (UTC)", required=False, widget=TextInput(attrs=exactly)),
            "to": forms.CharField(label="to (UTC)", required=False, widget=TextInput(attrs=exactly)),
        }


class RequestStatusFilter(ParameterFilter):
    title = "status"
    parameters = ("status",)

    def fields(self) -> dict[str, forms.Field]:
        suggested = TextInput(attrs={"placeholder": "ok, refused, failed or 429"})
        return {"status": forms.CharField(label="By status", required=False, widget=suggested)}


class ModelFilter(ParameterFilter):
    title = "model"
    parameters = ("model",)

    def fields(self) -> dict[str, forms.Field]:
        known = list(CatalogModel.objects.order_by("id").values_list("id", flat=True)[:MOST_SUGGESTIONS])
        chosen = self.used_parameters.get("model", "")
        # Models that are gone, or never were, have requests too.
        names = known if not chosen or chosen in known else [chosen, *known]
        choices = [("", "any model"), *((name, name) for name in names)]
        return {"model": forms.ChoiceField(label="By model", required=False, choices=choices, widget=Select)}


class KeyFilter(ParameterFilter):
    """A key that a link named. Stays when other filters are changed, until it is emptied."""

    title = "API key"
    parameters = ("api_key__id__exact",)

    def has_output(self) -> bool:
        return bool(self.used_parameters)

    def fields(self) -> dict[str, forms.Field]:
        return {
            "api_key__id__exact": forms.CharField(label="By API key (id)", required=False, widget=TextInput)
        }


class OwnerFilter(AutocompleteFilter):
    def queryset(self, request: HttpRequest, queryset: QuerySet[Activity]) -> QuerySet[Activity]:
        return queryset


class RequestList(ChangeList):
    """The list of requests, as `search` finds it."""

    found: search.FoundRequests | None = None

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Activity]:
        rows: QuerySet[Activity] = super().get_queryset(request, exclude_parameters)
        if self.query:
            return rows
        given = {name: values[-1] for name, values in self.filter_params.items()}
        try:
            query = search.parse_query(given)
        except (ValueError, OverflowError) as error:
            raise IncorrectLookupParameters(error) from error
        self.found = search.find(self.root_queryset, query)
        return self.found.requests

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Activity]) -> list[Any]:
        return ["-ended_at"]

    def chips(self) -> dict[str, list[dict[str, Any]]]:
        """The most used filters, as links that keep the rest of the address."""
        chosen = {name: values[-1] for name, values in self.filter_params.items()}
        is_exact = bool(chosen.get("from") or chosen.get("to"))
        return {
            "times": [
                {
                    "label": label,
                    "is_chosen": not is_exact and chosen.get("when", "") == value,
                    "address": self.get_query_string({"when": value or None}, ["from", "to", "q"]),
                }
                for value, label in TIMES
            ],
            "statuses": [
                {
                    "label": label,
                    "is_chosen": chosen.get("status", "") == value,
                    "address": self.get_query_string({"status": value or None}, ["q"]),
                }
                for value, label in STATUSES
            ],
        }
