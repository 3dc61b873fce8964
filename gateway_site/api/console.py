"""What the admin pages of every app are built from. The only module that imports the theme."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from unfold.admin import ModelAdmin as ThemedModelAdmin
from unfold.admin import TabularInline as ThemedTabularInline
from unfold.decorators import action as action
from unfold.decorators import display as display


class ModelAdmin(ThemedModelAdmin):
    """A page that people may write on, where its fields allow."""

    list_filter_submit = True
    show_full_result_count = False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # Money, keys and their trail hang below nearly everything; what ends is archived or revoked.
        return False


class ReadOnlyAdmin(ModelAdmin):
    """A window, not a pen."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class TabularInline(ThemedTabularInline):
    extra = 0
    can_delete = False
