"""What an operator may write about models and their deployments, checked field by field."""

from __future__ import annotations

from typing import Any

from django import forms

from gateway_site.console.kit.model_admin import CheckboxSelectMultiple, Select, TextInput
from inference.admin.price_form import PriceForm
from inference.catalog.services import MODALITIES
from inference.models import CatalogModel, Deployment
from inference.tokenizer import VOCABULARIES


class DeploymentForm(forms.ModelForm):
    """One backend of a model: a row of the table in the model's form."""

    class Meta:
        model = Deployment
        fields = ["backend", "upstream_id", "weight", "is_enabled"]
        labels = {"upstream_id": "Upstream model", "is_enabled": "Enabled"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            # Another backend or name is another deployment, with a history of its own.
            self.fields["backend"].disabled = self.fields["upstream_id"].disabled = True


class WordsField(forms.CharField):
    """A list of words, typed with commas between them."""

    def __init__(self, **options: Any) -> None:
        words = "Words, separated by commas."
        options["help_text"] = f"{options['help_text']} {words}" if "help_text" in options else words
        super().__init__(required=False, widget=TextInput, **options)

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        return [word.strip() for word in super().clean(value).split(",") if word.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


class ModalitiesField(forms.MultipleChoiceField):
    def __init__(self, **options: Any) -> None:
        choices = [(each, each) for each in MODALITIES]
        super().__init__(choices=choices, widget=CheckboxSelectMultiple, initial=["text"], **options)


class TokenizerField(forms.ChoiceField):
    """The vocabulary that a model's tokens are counted with, or none: then by the model's name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            choices=[("", "choose by the model's name"), *((name, name) for name in VOCABULARIES)],
            required=False,
            widget=Select,
            help_text="Counts prompts before they are sent, and answers whose backend reports no usage. "
            "Without one, the family is taken from the model's name on its backends, else from its id.",
            error_messages={"invalid_choice": f"Tokenizers are {', '.join(VOCABULARIES)}."},
            **options,
        )


class ModelForm(PriceForm):
    tokenizer = TokenizerField()
    input_modalities = ModalitiesField()
    output_modalities = ModalitiesField()
    supported_sampling_parameters = WordsField()
    supported_features = WordsField()
    required_checks = WordsField()

    class Meta:
        model = CatalogModel
        fields = [
            "id",
            "display_name",
            "owned_by",
            "is_enabled",
            "context_length",
            "max_output_length",
            "tokenizer",
            "is_tokenizer_exact",
            "quantization",
            "input_modalities",
            "output_modalities",
            "supported_sampling_parameters",
            "supported_features",
            "required_checks",
        ]
        labels = {"id": "ID", "is_enabled": "Enabled", "is_tokenizer_exact": "Tokenizer is exact"}
        help_texts = {
            "is_tokenizer_exact": "The vocabulary is the model's own, so a prompt that it finds too long is "
            "refused. Otherwise twice its count is held, and the backend says what is too long. Says "
            "nothing where the tokenizer is chosen by the model's name."
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            self.initial["tokenizer"] = ""  # not the column's default, which is for what nobody knows

    def state(self) -> Any:
        columns = DeploymentForm.Meta.fields
        return {
            **super().state(),
            "deployments": sorted(self.instance.deployments.values_list("pk", *columns)),
        }

    @property
    def changed_columns(self) -> dict[str, Any]:
        """The values that the operator changed, by column."""
        others = {"id", "seen", *self.FIELDS}
        changed = {name: self.cleaned_data[name] for name in self.changed_data if name not in others}
        if not self.cleaned_data["tokenizer"]:
            changed.pop("is_tokenizer_exact", None)
        elif "tokenizer" in changed:
            changed["is_tokenizer_exact"] = self.cleaned_data["is_tokenizer_exact"]
        return changed
