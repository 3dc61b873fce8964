"""A key that is rotated while a new pepper takes over from an old one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from gateway_site.api.errors import Unauthenticated
from organization import services
from organization.authentication import admin_key_from, customer_key_from
from organization.models import Organization, Project, ProjectKey
from organization.services import NewKey
from tests.factories import SOMEONE, make_admin_key, make_project_key
from tests.harness.isolation.connections import close_connections

ROUNDS = 8
CALLERS = 4


def bearer(value: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {value}".encode())]


def works(value: str, read: Callable[..., Any] = customer_key_from) -> bool:
    try:
        read(bearer(value))
    except Unauthenticated:
        return False
    return True


def before_the_next_write(act: Callable[[], object]) -> Any:
    """Do this once, after the key was read and before anything is written."""
    waiting = [act]

    def wrapper(execute: Any, statement: str, values: Any, many: bool, context: Any) -> Any:
        if statement.startswith("UPDATE") and waiting:
            waiting.pop()()
        return execute(statement, values, many, context)

    return connection.execute_wrapper(wrapper)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["customer", "admin"])
def test_a_rotation_between_read_and_write_is_not_undone(
    kind: str, acme: Organization, project: Project, settings: Any
) -> None:
    made: NewKey[Any] = make_project_key(project) if kind == "customer" else make_admin_key(acme)
    read = customer_key_from if kind == "customer" else admin_key_from
    settings.GATEWAY_KEY_PEPPERS = ["new", *settings.GATEWAY_KEY_PEPPERS]
    rotated: list[NewKey[Any]] = []

    with before_the_next_write(lambda: rotated.append(services.rotate_key(key=made.key, actor=SOMEONE))):
        assert not works(made.value, read)

    assert works(rotated[0].value, read)
    assert not works(made.value, read)


@pytest.mark.django_db(transaction=True)
def test_a_migration_by_another_process_between_read_and_write_is_no_refusal(
    project: Project, settings: Any
) -> None:
    made = make_project_key(project)
    settings.GATEWAY_KEY_PEPPERS = ["new", *settings.GATEWAY_KEY_PEPPERS]

    with before_the_next_write(lambda: customer_key_from(bearer(made.value))):
        key = customer_key_from(bearer(made.value))

    assert key.digest == ProjectKey.objects.get().digest
    assert works(made.value)


@pytest.mark.django_db(transaction=True)
def test_rotations_among_callers_of_the_old_value_end_it_for_good(project: Project, settings: Any) -> None:
    old, new = settings.GATEWAY_KEY_PEPPERS[0], "new"
    for turn in range(ROUNDS):
        settings.GATEWAY_KEY_PEPPERS = [old]
        made = services.create_project_key(project=project, name=f"key {turn}", actor=SOMEONE)
        settings.GATEWAY_KEY_PEPPERS = [new, old]
        start = threading.Barrier(CALLERS + 1)

        def call(value: str = made.value, start: threading.Barrier = start) -> None:
            start.wait(10)
            works(value)
            close_connections()

        callers = [threading.Thread(target=call) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        start.wait(10)
        rotated = services.rotate_key(key=made.key, actor=SOMEONE)
        for caller in callers:
            caller.join(20)

        assert works(rotated.value)
        assert not works(made.value)
