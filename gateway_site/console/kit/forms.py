"""
Forms of the console's pages: optimistic locking, and a service's refusal shown on the form.

What a person typed is not lost, and does not undo what another did meanwhile.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.crypto import salted_hmac

CHANGED_SINCE = (
    "Somebody else changed this after you opened the page, and nothing was saved. What you typed is still "
    "here; open the page again to see how it is now."
)


class OptimisticLockForm(forms.ModelForm):
    """
    Optimistic locking: the form brings back a digest of what its row was when the page was opened.

    Every field is posted, also those that the person left alone: an older page would set those back.
    """

    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Before the form writes on its row.
        self._digest = self._row_digest() if self.instance.pk else ""
        if "seen" in self.fields:
            self.fields["seen"].initial = self._digest

    def state(self) -> Any:
        """The values that the form can change, as they are now."""
        columns = {field.name for field in self._meta.model._meta.concrete_fields}
        written = [name for name in self._meta.fields or () if name in columns]
        return {name: self.instance.serializable_value(name) for name in written}

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        seen = cleaned.pop("seen", "")
        if seen and self._digest and seen != self._digest:
            raise forms.ValidationError(CHANGED_SINCE)
        return cleaned

    def _row_digest(self) -> str:
        return salted_hmac("console.seen", repr(self.state())).hexdigest()[:32]


def with_refusal(form: type[forms.ModelForm], message: str) -> type[forms.ModelForm]:
    """A form class that shows a service's refusal as if it were the form's own error."""

    def full_clean(self: Any) -> None:
        form.full_clean(self)
        self.add_error(None, message)

    return type(form.__name__, (form,), {"full_clean": full_clean})
