"""The checks of `doctor`: is everything that the gateway depends on there? Each gives one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings
from django.core.checks import run_checks
from django.db import DatabaseError, InterfaceError, connection
from django.db.models.functions import Now
from kombu.exceptions import OperationalError as BrokerError
from psycopg_pool import PoolTimeout

from gateway_site.celery_app import app as celery
from gateway_site.health import OK, cache_condition, data_directory, disk_condition, pending_migrations
from inference.catalog.probes import probe
from organization.models import Organization
from policies.judges.registry import chosen_kind
from policies.trial import probe_judge

MAX_CLOCK_DIFFERENCE_SECONDS = 2
BROKER_SECONDS = 3


class CheckFailed(Exception):
    """A check has failed; the message says what is wrong, for a person."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    subject: str
    is_good: bool
    sentence: str


def examine() -> list[DoctorFinding]:
    """Run every check, in the order in which one would repair what they find."""
    checks: dict[str, Callable[[], str]] = {
        "settings": check_settings,
        "data directory": check_data_directory,
        "database": check_database,
        "migrations": check_migrations,
        "clock": check_clock,
        "cache": check_cache,
        "broker": check_broker,
        "backends": check_backends,
        "judge": check_judge,
    }
    return [_run(subject, check) for subject, check in checks.items()]


def _run(subject: str, check: Callable[[], str]) -> DoctorFinding:
    try:
        return DoctorFinding(subject, True, check())
    except (CheckFailed, DatabaseError, InterfaceError, PoolTimeout, BrokerError, OSError) as problem:
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        return DoctorFinding(subject, False, lines[0])


def check_settings() -> str:
    messages = [message for message in run_checks() if not message.is_silenced()]
    if messages:
        raise CheckFailed("; ".join(str(message.msg) for message in messages))
    return "embedded defaults" if settings.IS_EMBEDDED else "from the environment"


def check_data_directory() -> str:
    if connection.vendor != "sqlite" and not settings.IS_BROKER_EMBEDDED:
        return "not needed"
    directory = data_directory()
    if (condition := disk_condition(directory)) != OK:
        raise CheckFailed(f"{directory} is {condition}.")
    return str(directory)


def check_database() -> str:
    with connection.cursor() as cursor:
        question = "SELECT sqlite_version()" if connection.vendor == "sqlite" else "SHOW server_version"
        cursor.execute(question)
        (version,) = cursor.fetchone()
    return f"{connection.display_name} {version}"


def check_migrations() -> str:
    if missing := pending_migrations():
        raise CheckFailed(f"{len(missing)} are missing; run `manage.py migrate`.")
    return "all applied"


def check_clock() -> str:
    database_time = Organization.objects.annotate(moment=Now()).values_list("moment", flat=True).first()
    if database_time is None:
        return "nothing to compare with until there is an organization"
    difference = abs((datetime.now(UTC) - database_time).total_seconds())
    if difference > MAX_CLOCK_DIFFERENCE_SECONDS:
        raise CheckFailed(f"This machine and the database are {difference:.0f} seconds apart.")
    return "agrees with the database's"


def check_cache() -> str:
    if (condition := cache_condition()) != OK:
        raise CheckFailed(f"Redis is {condition}; each process counts its own requests meanwhile.")
    return "shared, in Redis" if settings.REDIS_URL else "in each process"


def check_broker() -> str:
    if settings.IS_BROKER_EMBEDDED:
        return "in memory; `serve` runs the worker"
    with celery.connection_for_write(connect_timeout=BROKER_SECONDS) as broker:
        broker.ensure_connection(max_retries=0, timeout=BROKER_SECONDS)
    return "answers"


def check_backends() -> str:
    findings = probe()
    problems = [f"{finding.backend}: {finding.problem}" for finding in findings if finding.problem]
    if problems:
        raise CheckFailed("; ".join(problems))
    return f"{len(findings)} answer" if findings else "none yet; see `add_backend`"


def check_judge() -> str:
    trial = probe_judge()
    if trial.score is None:
        raise CheckFailed("The judge of policies does not answer; enforcing policies will refuse with 503.")
    return settings.GATEWAY_JUDGE_BASE_URL or chosen_kind().answers
