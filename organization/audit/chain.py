"""
The hash chain over the audit trail, which shows what was changed in the database behind the gateway's back.

* The seal of an event is an HMAC of its fields, written with it. Nobody without ENCRYPTION_KEYS can make one,
  so an event that was inserted by hand has none.
* The link of an event is written once the event is committed, in a transaction of its own: a lock on the end
  of the chain, held by every change in the console until it commits, would make them wait for each other.
  A link's digest covers its event and the digest before it; its signature is an HMAC of the digest.
* The head says how long the chain is, and is signed, so links that were cut off its end are missed.

Digests need no key. So a signature vouches for everything before it, and entries whose key has left
ENCRYPTION_KEYS stay verifiable through those after them.

What this cannot show: that the whole database was put back to an earlier state. For that, keep the head that
`verify_audit_trail` prints (the scheduled check logs it) somewhere else, and compare.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from gateway_site import sealing
from organization.models import AuditChainHead, AuditEvent, AuditLink

VERSION = 1
START = "0" * 64
HEAD_ID = 1
NONCE_LENGTH = 16
BATCH = 500
# Events are committed in another order than that of their ids; a link that failed is made up for as well.
OVERLAP = 1_000
# How long an event may wait for its link before that is a problem.
LINKED_WITHIN = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the trail, and from which event on."""

    kind: str
    event_id: int
    sentence: str


@dataclass(slots=True)
class Verification:
    """What a walk along the chain found."""

    linked: int = 0
    # Committed a moment ago, with a good seal.
    pending: int = 0
    head: str = START
    problems: list[Problem] = field(default_factory=list)


# --- writing ---------------------------------------------------------------------------------------------


def seal_of(event: AuditEvent) -> str:
    """What `AuditEvent.seal` is to hold: a nonce, so that no two are alike, and the HMAC."""
    nonce = secrets.token_hex(NONCE_LENGTH // 2)
    return nonce + _hmac_of(_signing_keys()[0], f"seal {nonce}", _canonical(event))


def link_new_events(since: int = 0, *, models: ChainModels | None = None, is_first: bool = False) -> int:
    """
    Append the events that have no link yet, from this id on. Returns how many were linked.

    What has no seal of ours is left out, but for those that are there when the chain begins.
    """
    models = models or ChainModels()
    linked, after = 0, since - 1
    while events := list(models.unlinked().filter(pk__gt=after).order_by("pk")[:BATCH]):
        after = events[-1].pk
        linked += models.append([event for event in events if is_first or is_genuine(event)])
    return linked


def link_event(event_id: int) -> None:
    """Link an event after its commit. One that was linked with its neighbours costs one query."""
    if not AuditLink.objects.filter(event_id=event_id).exists():
        link_new_events(max(0, event_id - OVERLAP))


class ChainModels:
    """The tables of the chain: the current ones, or those of a migration."""

    def __init__(self, event: Any = AuditEvent, link: Any = AuditLink, head: Any = AuditChainHead) -> None:
        self.event = event
        self.link = link
        self.head = head

    def begin(self) -> None:
        """Make the head of a chain without links, unless there is one."""
        self.head.objects.get_or_create(pk=HEAD_ID, defaults=_head(0, START))

    def unlinked(self) -> QuerySet[Any]:
        events: QuerySet[Any] = self.event.objects.filter(
            ~Exists(self.link.objects.filter(event_id=OuterRef("pk")))
        )
        return events

    def append(self, events: Sequence[Any]) -> int:
        """Append links in one transaction: lock the head, add the links, move the head."""
        if not events:
            return 0
        with transaction.atomic():
            head = self.head.objects.select_for_update().get(pk=HEAD_ID)
            ids = [event.pk for event in events]
            done = set(self.link.objects.filter(event_id__in=ids).values_list("event_id", flat=True))
            number, digest, links = head.number, head.digest, []
            key = _signing_keys()[0]
            for event in events:
                if event.pk in done:  # by another process, since we looked
                    continue
                number, digest = number + 1, _link_digest(digest, number + 1, event)
                links.append(
                    self.link(
                        number=number,
                        event_id=event.pk,
                        digest=digest,
                        key_id=_id_of(key),
                        signature=_hmac_of(key, f"link {number}", digest),
                    )
                )
            self.link.objects.bulk_create(links)
            self.head.objects.filter(pk=HEAD_ID).update(**_head(number, digest))
        return len(links)


# --- verifying -------------------------------------------------------------------------------------------


def is_genuine(event: AuditEvent) -> bool:
    """Whether the gateway wrote this event: its seal is right and on no other event."""
    nonce, mac = (event.seal or "")[:NONCE_LENGTH], (event.seal or "")[NONCE_LENGTH:]
    content = _canonical(event)
    macs = [_hmac_of(key, f"seal {nonce}", content) for key in _signing_keys()]
    is_sealed = any(_is_same(expected, mac) for expected in macs)
    return is_sealed and not AuditEvent.objects.filter(seal=event.seal).exclude(pk=event.pk).exists()


def verify() -> Verification:
    """Walk along the whole chain. The problems are the first of each kind, the earliest event first."""
    found = Verification()
    head = AuditChainHead.objects.filter(pk=HEAD_ID).first()
    _walk(head, found)
    _verify_unlinked_events(found)
    found.problems.sort(key=lambda problem: problem.event_id)
    return found


def re_sign_head() -> bool:
    """Sign the head with the first of ENCRYPTION_KEYS, so that older ones can go; never of a broken chain."""
    head = AuditChainHead.objects.filter(pk=HEAD_ID).first()
    if head is None or head.key_id == _id_of(_signing_keys()[0]) or verify().problems:
        return False
    unmoved = AuditChainHead.objects.filter(pk=HEAD_ID, number=head.number, digest=head.digest)
    return bool(unmoved.update(**_head(head.number, head.digest)))


def _walk(head: AuditChainHead | None, found: Verification) -> None:
    keys = {_id_of(key): key for key in _signing_keys()}
    # From here on no signature has vouched for what was read.
    doubtful_from: int | None = None
    for link, event in _links(head.number if head else 0):
        problem = _problem_of(link, event, found, keys.get(link.key_id))
        if problem is not None:
            found.problems.append(problem)
            return
        found.linked, found.head = link.number, link.digest
        doubtful_from = None if link.key_id in keys else doubtful_from or link.event_id
    if head is None or head.number != found.linked or head.digest != found.head:
        sentence = f"Entries after event {_last_event(found)} were removed."
        found.problems.append(Problem("removed", _last_event(found), sentence))
    elif not _is_signed(head, keys.get(head.key_id)):
        sentence = "The chain's end is not signed by any of ENCRYPTION_KEYS."
        found.problems.append(Problem("unsigned", doubtful_from or _last_event(found), sentence))


def _links(until: int) -> Iterator[tuple[AuditLink, AuditEvent | None]]:
    """Every link up to this number, with its event if that is there."""
    after = 0
    while links := list(
        AuditLink.objects.filter(number__gt=after, number__lte=until).order_by("number")[:BATCH]
    ):
        events = AuditEvent.objects.in_bulk([link.event_id for link in links])
        for link in links:
            yield link, events.get(link.event_id)
        after = links[-1].number


def _problem_of(
    link: AuditLink, event: AuditEvent | None, found: Verification, key: bytes | None
) -> Problem | None:
    if link.number != found.linked + 1:
        return Problem("removed", link.event_id, f"Entries before event {link.event_id} were removed.")
    if event is None:
        return Problem("removed", link.event_id, f"Event {link.event_id} was removed.")
    is_right = link.digest == _link_digest(found.head, link.number, event)
    if is_right and key is not None:
        is_right = _is_same(_hmac_of(key, f"link {link.number}", link.digest), link.signature)
    return None if is_right else Problem("changed", event.pk, f"Event {event.pk} was changed.")


def _verify_unlinked_events(found: Verification) -> None:
    """Check events without a link: committed a moment ago, or not by the gateway."""
    too_old = timezone.now() - LINKED_WITHIN
    for event in ChainModels().unlinked().order_by("pk").iterator(chunk_size=BATCH):
        if not is_genuine(event):
            sentence = f"Event {event.pk} was inserted by hand, or by a gateway older than the chain."
            found.problems.append(Problem("inserted", event.pk, sentence))
            return
        found.pending += 1
        if event.occurred_at < too_old:
            sentence = f"Event {event.pk} was taken out of the chain, or the scheduled check does not run."
            found.problems.append(Problem("unlinked", event.pk, sentence))
            return


def _last_event(found: Verification) -> int:
    last = AuditLink.objects.filter(number=found.linked).values_list("event_id", flat=True).first()
    return last or 0


# --- digests ---------------------------------------------------------------------------------------------


def _canonical(event: Any) -> str:
    """The event's fields as one text that reads the same before it is stored and after, on both databases."""
    organization_id = event.organization_id
    return json.dumps(
        [
            VERSION,
            event.occurred_at.astimezone(UTC).isoformat(timespec="microseconds"),
            organization_id.hex if organization_id else None,
            str(event.actor_kind),
            event.actor_id,
            event.actor_label,
            event.action,
            event.target_kind,
            event.target_id,
            _as_stored(json.loads(json.dumps(event.details))),
            event.request_id,
        ],
        sort_keys=True,
        separators=(",", ":"),
    )


def _as_stored(value: Any) -> Any:
    """A value as it comes back: PostgreSQL keeps numbers as decimals, so 1e20 becomes an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_as_stored(each) for each in value]
    if isinstance(value, dict):
        return {name: _as_stored(each) for name, each in value.items()}
    return value


def _link_digest(before: str, number: int, event: Any) -> str:
    content = f"{before}\n{number}\n{event.pk}\n{event.seal or ''}\n{_canonical(event)}"
    return hashlib.sha256(content.encode()).hexdigest()


def _head(number: int, digest: str) -> dict[str, Any]:
    key = _signing_keys()[0]
    signature = _hmac_of(key, f"head {number}", digest)
    return {"number": number, "digest": digest, "key_id": _id_of(key), "signature": signature}


def _is_signed(head: AuditChainHead, key: bytes | None) -> bool:
    expected = _hmac_of(key, f"head {head.number}", head.digest) if key else ""
    return _is_same(expected, head.signature)


def _hmac_of(key: bytes, purpose: str, content: str) -> str:
    return hmac.digest(key, f"{purpose}\n{content}".encode(), hashlib.sha256).hex()


def _is_same(expected: str, stored: str) -> bool:
    # As bytes: what is stored may be anything, and of text only ASCII is compared.
    return bool(expected) and hmac.compare_digest(expected.encode(), stored.encode())


def _signing_keys() -> list[bytes]:
    # Keys of their own for this purpose: other things are encrypted under the same ENCRYPTION_KEYS.
    return sealing.purpose_keys(b"audit trail")


def _id_of(key: bytes) -> str:
    """An id that tells keys apart and reveals nothing about them."""
    return _hmac_of(key, "id", "")[:16]
