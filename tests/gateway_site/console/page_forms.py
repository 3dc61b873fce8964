"""The forms of a page as a browser would send them, untouched."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from django.test import Client


def form_on(console: Client, address: str) -> dict[str, str]:
    """What the page's main form would send: every field, hidden ones too, as it is shown."""
    reader = _Reader()
    reader.feed(console.get(address).content.decode())
    [sent] = reader.forms
    return sent


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[dict[str, str]] = []
        self._select = self._text = ""
        self._is_in = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attributes)
        name = given.get("name") or ""
        if tag == "form":
            # Beside it are the search, the log-out, and buttons that are forms of their own.
            is_main = (given.get("id") or "").endswith("_form") or given.get("class") == "confirm-action"
            self._is_in = is_main
            self.forms += [{}] if is_main else []
        elif tag == "select":
            self._select = name
        elif tag == "textarea":
            self._text = name
            self._note(name, "")
        elif tag == "option" and "selected" in given:
            self._note(self._select, given.get("value") or "")
        elif tag == "input" and (given.get("type") not in ("checkbox", "radio") or "checked" in given):
            self._note(name, given.get("value") or ("on" if given.get("type") == "checkbox" else ""))

    def handle_data(self, text: str) -> None:
        if self._text and self._is_in:
            self._note(self._text, self.forms[-1][self._text] + text.lstrip("\r\n"))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = ""
        elif tag == "textarea":
            self._text = ""
        elif tag == "form":
            self._is_in = False

    def _note(self, name: str, value: str) -> None:
        if name and self._is_in and "__prefix__" not in name:
            self.forms[-1][name] = value
