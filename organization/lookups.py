"""Finding things by what a person would type: an id, or a name that is not ambiguous."""

from __future__ import annotations

from gateway_site.api.errors import NotFound
from gateway_site.api.identifiers import uuid_or_none
from organization.models import AdminKey, Organization, Project, ProjectKey


def find_organization(text: str) -> Organization:
    """The organization with this id or name."""
    identifier = uuid_or_none(text)
    found = Organization.objects.filter(pk=identifier).first() if identifier else None
    found = found or Organization.objects.filter(name=text).first()
    if found is None:
        raise NotFound(f"There is no organization with the id or name {text!r}.")
    return found


def find_project(text: str) -> Project:
    """The project with this id, or the only active one with this name."""
    projects = Project.objects.select_related("organization")
    identifier = uuid_or_none(text)
    found = projects.filter(pk=identifier).first() if identifier else None
    if found:
        return found
    named = list(projects.filter(name=text, archived_at=None)[:2])
    if len(named) == 1:
        return named[0]
    if named:
        raise NotFound(f"Several organizations have a project named {text!r}; give its id.")
    raise NotFound(f"There is no project with the id or name {text!r}.")


def find_key(text: str) -> ProjectKey | AdminKey:
    """The project or admin key with this id."""
    identifier = uuid_or_none(text)
    if identifier:
        customer = ProjectKey.objects.select_related("project__organization").filter(pk=identifier).first()
        found = customer or AdminKey.objects.select_related("organization").filter(pk=identifier).first()
        if found:
            return found
    raise NotFound(f"There is no key with the id {text!r}.")
