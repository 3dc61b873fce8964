"""
Log-in, log-out and password change of the console, with limits on guessing a password.

A guess is counted before it is tried, so that many at the same moment are no more than one after another;
a right one is taken back. While a name or an address has to wait, a right password is refused as well, and
unread: the answer and its time say nothing about it. Nobody waits for what others tried, if they have logged
in from the same browser before.
"""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.debug import sensitive_post_parameters

from gateway_site.api import exception_handler
from gateway_site.api.errors import InvalidRequest
from gateway_site.api.rate_limits.limits import Window, client_address, network_of
from gateway_site.console.login.form import MOST_NEXT_CHARACTERS, LogInForm, comparable
from gateway_site.console.login.known_devices import known_device, remember_device
from gateway_site.console.login.password_checks import WAIT_SECONDS, TooManyChecks, one_check
from gateway_site.console.playground import keys
from organization.audit import trail
from organization.audit.trail import Actor

logger = logging.getLogger(__name__)

FEW_MINUTES, HOUR = 300, 3600

Counter = tuple[Window, str]

admin.site.login_form = LogInForm


@sensitive_post_parameters()
def log_in(request: HttpRequest) -> HttpResponse:
    """The log-in page, with what counts guesses around it."""
    if len(request.POST.get("next", "") or request.GET.get("next", "")) > MOST_NEXT_CHARACTERS:
        problem = f"`next` has more than {MOST_NEXT_CHARACTERS:,} characters."
        return exception_handler.respond(InvalidRequest(problem, param="next"), request.path)
    if request.method != "POST":
        return admin.site.login(request)
    name, address = comparable(request.POST.get("username", "")), client_address(request)
    counters = _counters(name, address, known_device(request, name))
    for window, key in counters:
        if seconds := window.count(key):
            logger.warning("log-in to the console from %s has to wait: %s", address, window.group)
            return _refusal(request, seconds)
    before = request.user, request.session.get(keys.SESSION_ENTRY)
    try:
        with one_check():
            answer = admin.site.login(request)
    except TooManyChecks:
        _forget(counters)  # it was not tried
        logger.warning("log-in to the console from %s has to wait: too many at once", address)
        return _busy(request)
    if answer.status_code != 302:
        logger.warning("log-in of %s to the console from %s failed", _known(name), address)
        return answer
    _forget(counters)
    if before[0] != request.user:  # in the same browser, whose session ended
        keys.end_key(person=before[0], key_id=before[1])
    _record(request.user, address)
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
    """A person's own password. The trail says that it changed. Guesses at the old one are counted."""
    if request.method != "POST":
        return admin.site.password_change(request)
    person = request.user
    counter = (Window("old-password", settings.GATEWAY_LOGIN_TRIES, FEW_MINUTES), str(person.pk))
    if seconds := counter[0].count(counter[1]):
        return _refusal(request, seconds)
    try:
        with one_check():
            answer: Any = admin.site.password_change(request)
    except TooManyChecks:
        _forget([counter])
        return _busy(request)
    if answer.status_code == 302 and request.user.is_authenticated:
        actor = Actor.staff(request.user)
        trail.record(actor, "user.change_password", request.user, organization=None)
        keys.end_keys_of(request.user, actor=actor)
        remember_device(request, answer, request.user)
    elif "old_password" in answer.context_data["form"].errors:
        return answer  # type: ignore[no-any-return]
    _forget([counter])
    return answer  # type: ignore[no-any-return]


def _record(user: Any, address: str) -> None:
    logger.info("log-in of %s to the console from %s", user, address)
    trail.record(Actor.staff(user), "user.log_in", user, organization=None, details={"address": address})


def _counters(name: str, address: str, device: str | None) -> list[Counter]:
    if device is not None:
        return [(Window("device", settings.GATEWAY_LOGIN_TRIES, FEW_MINUTES), device)]
    network = network_of(address)
    return [
        (Window("name-and-address", settings.GATEWAY_LOGIN_TRIES, FEW_MINUTES), f"{network} {name}"),
        (Window("address", settings.GATEWAY_LOGIN_TRIES_PER_ADDRESS, FEW_MINUTES), network),
        (Window("name", settings.GATEWAY_LOGIN_TRIES_PER_NAME, HOUR), name),
    ]


def _forget(counters: list[Counter]) -> None:
    for window, key in counters:
        window.forget_one(key)


def _known(name: str) -> str:
    """A name for the log, if it is one: people also type their password into the wrong field."""
    return name if get_user_model().objects.filter(username__iexact=name).exists() else "an unknown name"


def _refusal(request: HttpRequest, seconds: int) -> HttpResponse:
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
