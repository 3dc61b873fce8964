"""The form of a backend, with a field for every option that the table of kinds has."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings

from gateway_site.console.kit.model_admin import (
    Checkbox,
    OptimisticLockForm,
    PasswordInput,
    Select,
    TextInput,
)
from gateway_site.http_client.ssrf_guard import AddressRefused, parse_base_url
from inference.admin.forms import WordsField
from inference.backends.kinds import KINDS, BackendOption, all_options, kinds_with_option, label_of
from inference.models import Backend


def kind_choices() -> list[tuple[str, str]]:
    return [("", "---------"), *((name, kind.label) for name, kind in KINDS.items())]


def field_name(option: str) -> str:
    """The form field of an option. Apart from the row's own columns, whatever options are called."""
    return f"option_{option}"


def option_fields() -> dict[str, forms.Field]:
    """A form field for every option of every kind, by the field's name."""
    return {field_name(option.name): _field_of(option) for option in all_options().values()}


class BackendForm(OptimisticLockForm):
    """
    What an operator may write about a backend. `cleaned_options` is what the row's options become.

    Options that belong to another kind than the one chosen are refused and never dropped. Those that no kind
    has any more are `removed_options`, which the page names.
    """

    kind = forms.ChoiceField(choices=kind_choices, widget=Select)
    credential = forms.CharField(
        label="API key",
        required=False,
        # Never rendered back, whatever was typed.
        widget=PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="Stored encrypted and never shown. Empty: as it is.",
    )
    removes_credential = forms.BooleanField(label="Remove the API key", required=False, widget=Checkbox)

    class Meta:
        model = Backend
        fields = ["name", "kind", "base_url", "is_enabled"]
        labels = {"base_url": "Address", "is_enabled": "Enabled"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for option, value in self.instance.options.items():
            self.initial[field_name(option)] = value

    @property
    def removed_options(self) -> list[str]:
        return sorted(set(self.instance.options) - set(all_options()))

    def state(self) -> Any:
        instance = self.instance
        return {**super().state(), "options": instance.options, "credential": instance.credential_ciphertext}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        kind = cleaned.get("kind")
        if kind is None:
            return cleaned
        self.cleaned_options = self._options_for(kind)
        if not KINDS[kind].has_address:
            return cleaned
        try:
            parse_base_url(cleaned.get("base_url", ""), allowed_hosts=settings.GATEWAY_BACKEND_HOSTS)
        except AddressRefused as problem:
            self.add_error("base_url", str(problem))
        return cleaned

    def _options_for(self, kind: str) -> dict[str, Any]:
        stored, shown, options = self.instance.options, all_options(), {}
        for name in shown:
            is_kept = name in stored and field_name(name) not in self.changed_data
            value = stored[name] if is_kept else self.cleaned_data.get(field_name(name))
            if not value and not is_kept:
                continue
            options[name] = value
            if kind not in kinds_with_option(name):
                self.add_error(
                    field_name(name), f"A backend of the kind {label_of(kind)} has no such option."
                )
        return options


def _field_of(option: BackendOption) -> forms.Field:
    kinds = " or ".join(label_of(kind) for kind in kinds_with_option(option.name))
    described: dict[str, Any] = {"label": option.label, "help_text": f"{option.help} For the kind {kinds}."}
    if option.is_list:
        return WordsField(**described)
    if option.choices:
        unset = ("", f"Not set ({option.default})" if option.default else "Not set")
        choices = [unset, *((choice, choice) for choice in option.choices)]
        return forms.ChoiceField(choices=choices, required=False, widget=Select, **described)
    return forms.CharField(required=False, widget=TextInput, **described)
