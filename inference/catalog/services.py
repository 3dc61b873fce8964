"""
Changes that operators make to backends, models and deployments, for the console and the commands alike.
Each service is one transaction that also writes the audit trail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from msgspec import structs

from billing.prices import versions
from billing.prices.card import PriceCard
from gateway_site.api.errors import InvalidRequest, NotFound
from gateway_site.http_client.ssrf_guard import AddressRefused, parse_base_url
from inference.backends.credentials import checked_credential
from inference.backends.kinds import KINDS, BackendKind
from inference.catalog import credentials_vault, served_models
from inference.catalog.credentials_vault import CredentialUnreadable
from inference.catalog.image_tokens import image_tokens_of
from inference.catalog.vocabularies import complete_vocabulary
from inference.models import MODEL_ID_LENGTH, Backend, CatalogModel, Deployment, PassedCheck
from inference.tokenizer import VOCABULARIES
from organization.audit import trail
from organization.audit.trail import Actor
from organization.models import NAME_LENGTH, Organization

MODALITIES = ("text", "image", "file", "audio", "video")
MAX_LENGTH = 2**31 - 1
DEFAULT_OUTPUT_LENGTH = 4096


def save_backend(
    *,
    name: str,
    kind: str,
    actor: Actor,
    base_url: str = "",
    credential: str | None = None,
    options: Mapping[str, Any] | None = None,
    is_enabled: bool | None = None,
) -> tuple[Backend, bool]:
    """
    Save the backend of this name. Returns it, and whether it is new.

    None keeps the stored value of credential, options or is_enabled. An empty credential removes it.
    """
    if not name.strip() or len(name) > NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(f"A backend's name has 1 to {NAME_LENGTH} characters.", param="name")
    if kind not in KINDS:
        raise InvalidRequest(f"The kind must be one of {', '.join(KINDS)}.", param="kind")
    address = _checked_address(KINDS[kind], base_url)
    with transaction.atomic():
        backend, is_new = Backend.objects.get_or_create(
            name=name, defaults={"kind": kind, "base_url": address}
        )
        changes: dict[str, Any] = {"kind": kind, "base_url": address}
        if options is not None:
            changes["options"] = _checked_options(KINDS[kind], options)
        if is_enabled is not None:
            changes["is_enabled"] = is_enabled
        if credential is not None:
            changes["credential_ciphertext"] = _sealed(credential)
        elif backend.credential_ciphertext and _origin(backend.base_url) != _origin(address):
            # Whoever may edit an address must not thereby read the credential at their own server.
            raise InvalidRequest("The host changes: give the API key again.", param="credential")
        _apply(backend, changes, is_new, actor)
    return backend, is_new


def save_model(
    *,
    model_id: str,
    changes: Mapping[str, Any],
    actor: Actor,
    prices: Mapping[str, int | None] | None = None,
    card: PriceCard | None = None,
    valid_from: datetime | None = None,
    is_confirmed: bool = False,
    upstream_ids: Sequence[str] = (),
) -> tuple[CatalogModel, bool]:
    """
    Change these columns of the model, or add it. Returns it, and whether it is new.

    `prices` are base prices in pico-USD by part, which change the card that is in force then; `card` is a
    whole one. Either is stored as a version of its price; implausible ones only if they are confirmed.
    `upstream_ids` are its names where it is about to be deployed, which tell its vocabulary.
    """
    _require_model_id(model_id)
    with transaction.atomic():
        model, is_new = CatalogModel.objects.get_or_create(
            pk=model_id, defaults={"input_modalities": ["text"], "output_modalities": ["text"]}
        )
        model = CatalogModel.objects.select_for_update().get(pk=model.pk)
        wanted = dict(changes)
        if is_new and "max_output_length" not in wanted and "context_length" in wanted:
            wanted["max_output_length"] = min(DEFAULT_OUTPUT_LENGTH, wanted["context_length"])
        deployed = model.deployments.order_by("pk").values_list("upstream_id", flat=True)
        wanted = complete_vocabulary(
            wanted, is_new=is_new, model_id=model_id, upstream_ids=[*upstream_ids, *deployed]
        )
        _check_model(model, wanted)
        _apply(model, wanted, is_new, actor)
        _save_prices(model, prices or {}, card, valid_from, actor, is_confirmed, upstream_ids)
    return model, is_new


def save_deployment(
    *,
    model: CatalogModel,
    backend: Backend,
    upstream_id: str,
    actor: Actor,
    weight: int | None = None,
    is_enabled: bool | None = None,
) -> tuple[Deployment, bool]:
    """Deploy the model on a backend under the name it has there. Returns it, and whether it is new."""
    # Servers name models as they like, after the path of a file for example.
    if not 1 <= len(upstream_id) <= MODEL_ID_LENGTH or not upstream_id.isprintable():
        raise InvalidRequest(
            f"A model's name on a backend has 1 to {MODEL_ID_LENGTH} characters.", param="upstream_id"
        )
    if weight is not None and not 1 <= weight <= MAX_LENGTH:
        raise InvalidRequest("A weight is a whole number from 1.", param="weight")
    with transaction.atomic():
        deployment, is_new = Deployment.objects.get_or_create(
            model=model, backend=backend, upstream_id=upstream_id
        )
        wanted = {"weight": weight, "is_enabled": is_enabled}
        changes = {name: value for name, value in wanted.items() if value is not None}
        _apply(deployment, changes, is_new, actor, about=_deployment_details(deployment))
    return deployment, is_new


def remove_deployment(*, deployment: Deployment, actor: Actor) -> None:
    """Remove a deployment. Requests that run on its backend end there."""
    with transaction.atomic():
        trail.record(
            actor, "deployment.remove", deployment, organization=None, details=_deployment_details(deployment)
        )
        deployment.delete()
        transaction.on_commit(served_models.forget)


def pass_check(*, organization: Organization, check_name: str, actor: Actor) -> PassedCheck:
    """Note that the organization meets a condition that some models require."""
    _require_check_name(check_name)
    with transaction.atomic():
        passed, is_new = PassedCheck.objects.get_or_create(organization=organization, check_name=check_name)
        if is_new:
            details = {"check": check_name}
            trail.record(actor, "check.pass", passed, organization=organization, details=details)
            transaction.on_commit(served_models.forget)
    return passed


def withdraw_check(*, passed: PassedCheck, actor: Actor) -> None:
    """The organization no longer meets the condition; the models that require it are locked."""
    with transaction.atomic():
        details = {"check": passed.check_name}
        trail.record(actor, "check.withdraw", passed, organization=passed.organization, details=details)
        passed.delete()
        transaction.on_commit(served_models.forget)


def find_backend(name: str) -> Backend:
    found = Backend.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"There is no backend named {name!r}.")
    return found


def _apply(
    row: Backend | CatalogModel | Deployment,
    changes: Mapping[str, Any],
    is_new: bool,
    actor: Actor,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write the columns that differ, and an audit event of them; nothing if nothing differs."""
    changed = {name: value for name, value in changes.items() if getattr(row, name) != value}
    if not changed and not is_new:
        return
    before = {name: _audit_value(name, getattr(row, name)) for name in changed}
    for name, value in changed.items():
        setattr(row, name, value)
    row.save(update_fields=list(changed))
    kind = {Backend: "backend", CatalogModel: "model", Deployment: "deployment"}[type(row)]
    recorded = changes if is_new else changed
    details = {**(about or {}), **{name: _audit_value(name, value) for name, value in recorded.items()}}
    if not is_new:
        details["before"] = before
    trail.record(actor, f"{kind}.{'create' if is_new else 'change'}", row, organization=None, details=details)
    transaction.on_commit(served_models.forget)


def _audit_value(name: str, value: Any) -> Any:
    if name == "credential_ciphertext":
        return "set" if value else "removed"
    return value


def _deployment_details(deployment: Deployment) -> dict[str, str]:
    return {
        "model": deployment.model_id,
        "backend": deployment.backend.name,
        "upstream_id": deployment.upstream_id,
    }


def _checked_address(kind: BackendKind, base_url: str) -> str:
    if not kind.has_address:
        if base_url:
            raise InvalidRequest(f"A {kind.label.lower()} has no address.", param="base_url")
        return ""
    try:
        address = str(parse_base_url(base_url, allowed_hosts=settings.GATEWAY_BACKEND_HOSTS))
    except AddressRefused as problem:
        raise InvalidRequest(str(problem), param="base_url") from None
    if len(address) > 500:
        raise InvalidRequest("The address is too long.", param="base_url")
    return address


def _origin(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc


def _checked_options(kind: BackendKind, options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        kind.check_options(options)
    except ValueError as problem:
        raise InvalidRequest(str(problem), param="options") from None
    return dict(options)


def _sealed(credential: str) -> bytes | None:
    if not credential:
        return None
    try:
        return credentials_vault.seal(checked_credential(credential))
    except (ValueError, CredentialUnreadable) as problem:
        raise InvalidRequest(str(problem), param="credential") from None


def _require_model_id(model_id: str) -> None:
    segments = model_id.split("/")
    if not 1 <= len(model_id) <= MODEL_ID_LENGTH or not model_id.isprintable() or " " in model_id:
        raise InvalidRequest(f"A model's id has 1 to {MODEL_ID_LENGTH} characters and no spaces.")
    if any(segment in ("", ".", "..") for segment in segments):
        raise InvalidRequest("Clients drop such parts of a path: a model's id has no `//`, `/./` or `/../`.")


def _require_check_name(name: str) -> None:
    if not name.strip() or len(name) > NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(f"A check's name has 1 to {NAME_LENGTH} characters.")


def _save_prices(
    model: CatalogModel,
    prices: Mapping[str, int | None],
    card: PriceCard | None,
    valid_from: datetime | None,
    actor: Actor,
    is_confirmed: bool,
    upstream_ids: Sequence[str],
) -> None:
    before = versions.in_force_for(model.pk, valid_from) if prices else None
    if prices:
        known = card or (before.card if before else None)
        card = versions.changed_card(known, prices)
        if known is None and card is not None:
            card = structs.replace(card, image_tokens=image_tokens_of(model.pk, upstream_ids))
    if card is None:
        return
    _, is_new = versions.add_version(
        model=model.pk,
        card=card,
        source=actor.label,
        actor=actor,
        valid_from=valid_from,
        is_confirmed=is_confirmed,
    )
    if is_new:
        # It may have been read before.
        model.__dict__.pop("price_version", None)
        transaction.on_commit(served_models.forget)


def _check_model(model: CatalogModel, changes: Mapping[str, Any]) -> None:
    for column in ("input_modalities", "output_modalities"):
        if not set(changes.get(column, ["text"])) <= set(MODALITIES):
            raise InvalidRequest(f"Modalities are {', '.join(MODALITIES)}.", param=column)
    if "tokenizer" in changes and changes["tokenizer"] not in VOCABULARIES:
        raise InvalidRequest(
            f"Tokenizers are {', '.join(VOCABULARIES)}; with none, one is chosen by the model's name.",
            param="tokenizer",
        )
    context = changes.get("context_length", model.context_length)
    output = changes.get("max_output_length", model.max_output_length)
    if not 1 <= output <= context <= MAX_LENGTH:
        raise InvalidRequest(
            f"An output of up to {output} tokens does not fit a context of {context}.",
            param="max_output_length",
        )
