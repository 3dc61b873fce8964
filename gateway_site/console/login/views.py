"""Log-in, log-out and password change of the console. `attempt_limits` bounds the guesses."""

from __future__ import annotations

import logging
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.debug import sensitive_post_parameters

from gateway_site.api import exception_handler
from gateway_site.api.errors import InvalidRequest
from gateway_site.api.rest_rate_limits.limits import client_address
from gateway_site.console.login.attempt_limits import login_counters, old_password_counter, take_back
from gateway_site.console.login.form import MOST_NEXT_CHARACTERS, LogInForm, comparable
from gateway_site.console.login.known_devices import known_device, remember_device
from gateway_site.console.login.password_check_slots import (
    WAIT_SECONDS,
    NoPasswordCheckSlot,
    password_check_slot,
)
from gateway_site.console.playground import keys
from organization.audit import trail
from organization.audit.trail import Actor

logger = logging.getLogger(__name__)

admin.site.login_form = LogInForm


@sensitive_post_parameters()
def log_in(request: HttpRequest) -> HttpResponse:
    """Answer the log-in page; attempts are counted, and refused with 429 where there were too many."""
    if len(request.POST.get("next", "") or request.GET.get("next", "")) > MOST_NEXT_CHARACTERS:
        problem = f"`next` has more than {MOST_NEXT_CHARACTERS:,} characters."
        return exception_handler.respond(InvalidRequest(problem, param="next"), request.path)
    if request.method != "POST":
        return admin.site.login(request)
    name, address = comparable(request.POST.get("username", "")), client_address(request)
    counters = login_counters(name, address, known_device(request, name))
    for counter in counters:
        if seconds := counter.count():
            logger.warning("log-in to the console from %s has to wait: %s", address, counter.group)
            return _too_many_attempts(request, seconds)
    before = request.user, request.session.get(keys.SESSION_ENTRY)
    try:
        with password_check_slot():
            answer = admin.site.login(request)
    except NoPasswordCheckSlot:
        take_back(counters)  # it was not tried
        logger.warning("log-in to the console from %s has to wait: too many at once", address)
        return _busy(request)
    if answer.status_code != 302:
        logger.warning("log-in of %s to the console from %s failed", _name_for_log(name), address)
        return answer
    take_back(counters)
    if before[0] != request.user:  # in the same browser, whose session ended
        keys.end_key(person=before[0], key_id=before[1])
    _record_login(request.user, address)
    remember_device(request, answer, request.user)
    return answer


def log_out(request: HttpRequest) -> HttpResponse:
    """End the session, and with it the key that its playground had."""
    person, key_id = request.user, request.session.get(keys.SESSION_ENTRY)
    answer = admin.site.logout(request)
    if person.is_authenticated and not request.user.is_authenticated:
        logger.info("log-out of %s from the console", person)
        keys.end_key(person=person, key_id=key_id)
    return answer


@sensitive_post_parameters()
def change_password(request: HttpRequest) -> HttpResponse:
    """Change a person's own password, with an audit event. Guesses at the old one are counted."""
    if request.method != "POST":
        return admin.site.password_change(request)
    counter = old_password_counter(request.user)
    if seconds := counter.count():
        return _too_many_attempts(request, seconds)
    try:
        with password_check_slot():
            answer: Any = admin.site.password_change(request)
    except NoPasswordCheckSlot:
        take_back([counter])
        return _busy(request)
    if answer.status_code == 302 and request.user.is_authenticated:
        actor = Actor.staff(request.user)
        trail.record(actor, "user.change_password", request.user, organization=None)
        keys.end_keys_of(request.user, actor=actor)
        remember_device(request, answer, request.user)
    elif "old_password" in answer.context_data["form"].errors:
        return answer  # type: ignore[no-any-return]
    take_back([counter])
    return answer  # type: ignore[no-any-return]


def _record_login(user: Any, address: str) -> None:
    logger.info("log-in of %s to the console from %s", user, address)
    trail.record(Actor.staff(user), "user.log_in", user, organization=None, details={"address": address})


def _name_for_log(name: str) -> str:
    """A name for the log, if it is one: people also type their password into the wrong field."""
    return name if get_user_model().objects.filter(username__iexact=name).exists() else "an unknown name"


def _too_many_attempts(request: HttpRequest, seconds: int) -> HttpResponse:
    context = {"title": "Too many attempts", "minutes": -(-seconds // 60)}
    return _wait_page(request, 429, seconds, context)


def _busy(request: HttpRequest) -> HttpResponse:
    return _wait_page(request, 503, WAIT_SECONDS, {"title": "Busy", "is_busy": True})


def _wait_page(request: HttpRequest, status: int, seconds: int, context: dict[str, Any]) -> HttpResponse:
    context = {**admin.site.each_context(request), **context}
    answer = TemplateResponse(request, "admin/login_wait.html", context, status=status)
    answer.headers["Retry-After"] = str(seconds)
    add_never_cache_headers(answer)
    return answer
