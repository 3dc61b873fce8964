"""
Django's settings, driven by the environment: one file, read from top to bottom.

With nothing set, everything is embedded: SQLite and the secrets in GATEWAY_DATA_DIR, the cache in the
process, Celery over memory. With DATABASE_URL set, nothing is invented: every secret must be given.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from gateway_site import env
from gateway_site.console.theme import UNFOLD as UNFOLD
from gateway_site.logs import logging_settings
from gateway_site.quickstart.embedded_secrets import keep_private, load_or_create_secrets

BASE_DIR = Path(__file__).resolve().parent.parent
GATEWAY_DATA_DIR = Path(env.text("GATEWAY_DATA_DIR", str(BASE_DIR / "data")))
IS_EMBEDDED = not env.secret("DATABASE_URL")

# --- secrets -----------------------------------------------------------------------------------------

if IS_EMBEDDED:
    os.umask(0o077)  # whatever this process makes is its owner's: the database, Celery's files, downloads
_made_here = load_or_create_secrets(GATEWAY_DATA_DIR) if IS_EMBEDDED else {}


def _required_secret(name: str) -> str:
    value = env.secret(name) or _made_here.get(name, "")
    if not value:
        raise ImproperlyConfigured(f"{name} (or {name}_FILE) must be set when DATABASE_URL is.")
    return value


SECRET_KEY = _required_secret("SECRET_KEY")
# Fernet keys, comma-separated: the first encrypts, all decrypt.
ENCRYPTION_KEYS = [key.strip() for key in _required_secret("ENCRYPTION_KEYS").split(",")]
# Comma-separated: the first makes digests of API keys, all are tried when one is presented.
GATEWAY_KEY_PEPPERS = [pepper.strip() for pepper in _required_secret("GATEWAY_KEY_PEPPERS").split(",")]

# --- who may reach it --------------------------------------------------------------------------------

DEBUG = env.boolean("DEBUG", False)
ALLOWED_HOSTS = env.comma_separated("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = env.comma_separated("CSRF_TRUSTED_ORIGINS")
CSRF_FAILURE_VIEW = "gateway_site.console.error_pages.csrf_failed"
# How many proxies of ours stand in front; the client's address is that many hops from the right.
GATEWAY_TRUSTED_PROXIES = env.integer("GATEWAY_TRUSTED_PROXIES", 0)

# --- the interface -----------------------------------------------------------------------------------

# Unspecified: limits. The spec gives no number for these; a deployment decides.
GATEWAY_MAX_BODY_BYTES = env.integer("GATEWAY_MAX_BODY_BYTES", 10 * 1024 * 1024, minimum=1024)
DATA_UPLOAD_MAX_MEMORY_SIZE = None  # counted already, by `gateway_site.api.bodies`
# JSON values in one body, nested ones and all; and what the lists of a prompt may hold. Far above what
# conversations and their tools have, and few enough that reading them takes a fraction of a second.
GATEWAY_MAX_BODY_NODES = env.integer("GATEWAY_MAX_BODY_NODES", 50_000, minimum=100)
GATEWAY_MAX_MESSAGES = env.integer("GATEWAY_MAX_MESSAGES", 10_000, minimum=1)
GATEWAY_MAX_CONTENT_PARTS = env.integer("GATEWAY_MAX_CONTENT_PARTS", 10_000, minimum=1)
GATEWAY_MAX_TOOLS = env.integer("GATEWAY_MAX_TOOLS", 1_024, minimum=1)
# Threads that read large bodies, and how many bytes of these may wait for them; one organization's, half.
GATEWAY_BODY_THREADS = env.integer("GATEWAY_BODY_THREADS", 2, minimum=1)
GATEWAY_BODY_QUEUE_BYTES = env.integer("GATEWAY_BODY_QUEUE_BYTES", 256 * 1024 * 1024, minimum=1024)
GATEWAY_BODY_TIMEOUT_SECONDS = env.integer("GATEWAY_BODY_TIMEOUT_SECONDS", 30, minimum=1)
# The request line and the headers: bytes together, number of fields, and how long they may take to arrive.
GATEWAY_MAX_HEAD_BYTES = env.integer("GATEWAY_MAX_HEAD_BYTES", 64 * 1024, minimum=1024)
GATEWAY_MAX_HEAD_FIELDS = env.integer("GATEWAY_MAX_HEAD_FIELDS", 100, minimum=1)
GATEWAY_HEAD_TIMEOUT_SECONDS = env.integer("GATEWAY_HEAD_TIMEOUT_SECONDS", 10, minimum=1)
# Of clients, in each worker; 0: what the limit of open files leaves room for.
GATEWAY_MAX_CONNECTIONS = env.integer("GATEWAY_MAX_CONNECTIONS", 0)
GATEWAY_ADMIN_REQUESTS_PER_MINUTE = env.integer("GATEWAY_ADMIN_REQUESTS_PER_MINUTE", 600, minimum=1)
GATEWAY_FAILED_LOGINS_PER_MINUTE = env.integer("GATEWAY_FAILED_LOGINS_PER_MINUTE", 60, minimum=1)
# Wrong passwords for the console: in 5 minutes for one name from one address, in 5 minutes from one address
# for whatever names, and in an hour for one name from wherever.
GATEWAY_LOGIN_TRIES = env.integer("GATEWAY_LOGIN_TRIES", 5, minimum=1)
GATEWAY_LOGIN_TRIES_PER_ADDRESS = env.integer("GATEWAY_LOGIN_TRIES_PER_ADDRESS", 30, minimum=1)
GATEWAY_LOGIN_TRIES_PER_NAME = env.integer("GATEWAY_LOGIN_TRIES_PER_NAME", 100, minimum=1)
GATEWAY_EXTENSIONS = env.boolean("GATEWAY_EXTENSIONS", True)

# --- the ledger --------------------------------------------------------------------------------------

# Unspecified: limits. Of each customer key, exact over all processes; 0 means no limit.
GATEWAY_REQUESTS_PER_MINUTE = env.integer("GATEWAY_REQUESTS_PER_MINUTE", 6_000)
GATEWAY_CONCURRENCY = env.integer("GATEWAY_CONCURRENCY", 1_000)
# A hold lives this long without a heartbeat; then the sweeper decides what became of its request.
GATEWAY_LEASE_SECONDS = env.integer("GATEWAY_LEASE_SECONDS", 15, minimum=1)
GATEWAY_HEARTBEAT_SECONDS = env.integer("GATEWAY_HEARTBEAT_SECONDS", 2, minimum=1)
GATEWAY_SWEEP_SECONDS = env.integer("GATEWAY_SWEEP_SECONDS", 5, minimum=1)
# An outcome that stays unknown this long is released: what it may have cost is the operator's loss.
GATEWAY_UNKNOWN_MINUTES = env.integer("GATEWAY_UNKNOWN_MINUTES", 10, minimum=1)
env.refuse_removed(
    "GATEWAY_UNKNOWN_HOURS",
    "Set GATEWAY_UNKNOWN_MINUTES: an outcome is unknown for minutes now, by default 10.",
)
# How long admission may wait for the database before it answers 503.
GATEWAY_ADMISSION_WAIT_SECONDS = env.integer("GATEWAY_ADMISSION_WAIT_SECONDS", 3, minimum=1)

# --- backends ----------------------------------------------------------------------------------------

# Names and networks ("10.0.0.0/8") where backends may be; empty: anywhere but link-local and metadata.
GATEWAY_BACKEND_HOSTS = env.hosts_and_networks("GATEWAY_BACKEND_HOSTS")
# Unspecified: limits. The longest that a backend may take for one answer.
GATEWAY_DEADLINE_SECONDS = env.integer("GATEWAY_DEADLINE_SECONDS", 240, minimum=1)
# What `add_backend` takes where it is told no address and no variable.
OPENAI_BASE_URL = env.text("OPENAI_BASE_URL", "https://api.openai.com/v1")

# --- inference ---------------------------------------------------------------------------------------

# Unspecified: limits. How long a backend may take to be reached, to begin its answer, and to go on.
GATEWAY_CONNECT_SECONDS = env.integer("GATEWAY_CONNECT_SECONDS", 5, minimum=1)
GATEWAY_FIRST_BYTE_SECONDS = env.integer("GATEWAY_FIRST_BYTE_SECONDS", 60, minimum=1)
GATEWAY_BETWEEN_BYTES_SECONDS = env.integer("GATEWAY_BETWEEN_BYTES_SECONDS", 60, minimum=1)
# A stream that is silent for this long gets a comment, before something on the way takes it for dead.
GATEWAY_PING_SECONDS = env.integer("GATEWAY_PING_SECONDS", 15, minimum=1)
# A client that takes nothing for this long is given up: what waits for it is somebody's memory.
GATEWAY_SLOW_READER_SECONDS = env.integer("GATEWAY_SLOW_READER_SECONDS", 30, minimum=1)
# How long requests may go on after the server was told to stop.
GATEWAY_DRAIN_SECONDS = env.integer("GATEWAY_DRAIN_SECONDS", 30, minimum=1)
# Whether answers say where their time went, in a Server-Timing header. It tells clients how busy we are.
GATEWAY_SERVER_TIMING = env.boolean("GATEWAY_SERVER_TIMING", False)
# Whether http(s) addresses of images go on to backends, which then fetch them. The gateway never does.
GATEWAY_REMOTE_IMAGES = env.boolean("GATEWAY_REMOTE_IMAGES", False)

# --- policies ----------------------------------------------------------------------------------------

# An OpenAI-compatible server whose model answers policies' questions. Without one, only questions that
# quote a phrase are answered, by looking for it.
GATEWAY_JUDGE_BASE_URL = env.text("GATEWAY_JUDGE_BASE_URL")
GATEWAY_JUDGE_MODEL = env.text("GATEWAY_JUDGE_MODEL")
GATEWAY_JUDGE_API_KEY = env.secret("GATEWAY_JUDGE_API_KEY")
if GATEWAY_JUDGE_BASE_URL and not GATEWAY_JUDGE_MODEL:
    raise ImproperlyConfigured("GATEWAY_JUDGE_MODEL must be set when GATEWAY_JUDGE_BASE_URL is.")
# From which probability of "yes" on a policy matches, in hundredths of a percent, if it names no other.
GATEWAY_JUDGE_THRESHOLD_BASIS_POINTS = env.integer("GATEWAY_JUDGE_THRESHOLD_BASIS_POINTS", 5_000, minimum=1)
if GATEWAY_JUDGE_THRESHOLD_BASIS_POINTS > 9_999:
    raise ImproperlyConfigured("GATEWAY_JUDGE_THRESHOLD_BASIS_POINTS must be at most 9999.")
# Calls to the judge at a time, of one process, and how long one text may take to be judged.
GATEWAY_JUDGE_CONCURRENCY = env.integer("GATEWAY_JUDGE_CONCURRENCY", 32, minimum=1)
GATEWAY_JUDGE_SECONDS = env.integer("GATEWAY_JUDGE_SECONDS", 10, minimum=1)
# Whether a backend may start while the request is being judged. It saves the judge's time, and a prompt that
# is then refused has reached the backend, at the operator's cost.
GATEWAY_JUDGE_SPECULATIVELY = env.boolean("GATEWAY_JUDGE_SPECULATIVELY", False)
# How much of an answer is judged and released at a time, where an enforcing policy reads it.
GATEWAY_JUDGE_WINDOW_CHARACTERS = env.integer("GATEWAY_JUDGE_WINDOW_CHARACTERS", 400, minimum=1)
# How long verdicts are kept. They hold no text.
GATEWAY_VERDICT_DAYS = env.integer("GATEWAY_VERDICT_DAYS", 90, minimum=1)

# --- applications ------------------------------------------------------------------------------------

INSTALLED_APPS = [
    # First, so that it provides `runserver`. Nothing else needs it, and it is a tenth of a worker's memory.
    *(["daphne"] if "runserver" in sys.argv else []),
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "gateway_site",
    "organization",
    "billing",
    "policies",
    "inference",
]
MIDDLEWARE = [
    "gateway_site.console.content_security.content_security_middleware",
    "gateway_site.console.request_validation.validate_console_request",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "gateway_site.urls"
ASGI_APPLICATION = "gateway_site.asgi.application"
APPEND_SLASH = False  # a redirect would turn a client's POST into a GET
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- database ----------------------------------------------------------------------------------------

# A wait on a database that is frozen, unreachable or locked ends after so long; clients then get a 503.
GATEWAY_DATABASE_WAIT_SECONDS = env.integer("GATEWAY_DATABASE_WAIT_SECONDS", 3, minimum=1)
GATEWAY_STATEMENT_TIMEOUT_MS = env.integer("GATEWAY_STATEMENT_TIMEOUT_MS", 30_000)
DATABASES: dict[str, dict[str, Any]]
if IS_EMBEDDED:
    DATABASES = {
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": GATEWAY_DATA_DIR / "gateway.sqlite3"}
    }
else:
    DATABASES = {"default": env.database("DATABASE_URL")}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    keep_private(Path(DATABASES["default"]["NAME"]))
    DATABASES["default"]["OPTIONS"] = {
        # A transaction that reads first and writes later fails at once under DEFERRED when another
        # has written in between; IMMEDIATE waits its turn.
        "transaction_mode": "IMMEDIATE",
        "timeout": GATEWAY_DATABASE_WAIT_SECONDS,
        # FULL: what was acknowledged survives a power cut, as on PostgreSQL.
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;",
    }
else:
    DATABASES["default"]["ENGINE"] = "gateway_site.database.postgresql"
    DATABASES["default"].setdefault("OPTIONS", {})
    DATABASES["default"]["OPTIONS"] |= {
        "connect_timeout": max(2, GATEWAY_DATABASE_WAIT_SECONDS),  # libpq takes no shorter one
        # A peer that vanished without a word is noticed in seconds and not in hours.
        "keepalives_idle": 2,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        "tcp_user_timeout": GATEWAY_DATABASE_WAIT_SECONDS * 1000,
        "pool": {
            "min_size": env.integer("DATABASE_POOL_MIN", 1),
            "max_size": env.integer("DATABASE_POOL_MAX", 20, minimum=2),
            "timeout": GATEWAY_DATABASE_WAIT_SECONDS,
            "max_waiting": 500,
            # Who tries for longer waits for longer between two tries, also when the database is back.
            "reconnect_timeout": 1,
        },
        # A lock that another session forgot must not freeze the service.
        "options": " ".join(
            f"-c {name}={milliseconds}"
            for name, milliseconds in {
                "lock_timeout": 2_000,
                "idle_in_transaction_session_timeout": 10_000,
                "statement_timeout": GATEWAY_STATEMENT_TIMEOUT_MS,
            }.items()
        ),
    }

# /readyz answers 503 where the disk that SQLite writes to has less than this left.
GATEWAY_MIN_FREE_BYTES = env.integer("GATEWAY_MIN_FREE_BYTES", 64 * 1024 * 1024)

# --- cache, tasks ------------------------------------------------------------------------------------

REDIS_URL = env.secret("REDIS_URL")
CACHES = {
    "default": {"BACKEND": "gateway_site.api.rest_rate_limits.redis_cache.LimitCache", "LOCATION": REDIS_URL}
}
RATELIMIT_USE_CACHE = "default"
# The limiter knows no cache but those that it was tried with.
SILENCED_SYSTEM_CHECKS = ["django_ratelimit.W001"]

# Within a process only: the live tail's news come from the database, which all processes read.
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

# With no broker configured, `serve` runs a worker with beat in it, whose memory is the broker: there is no
# file that a crash could leave half written.
_broker = env.secret("CELERY_BROKER_URL") or REDIS_URL
IS_BROKER_EMBEDDED = _broker in ("", "filesystem://")  # the second is what it was called once
CELERY_BROKER_URL = "memory://localhost/" if IS_BROKER_EMBEDDED else _broker
# Sent from any other process, a task would reach nobody: it runs where it is called.
CELERY_TASK_ALWAYS_EAGER = CELERY_TASK_EAGER_PROPAGATES = IS_BROKER_EMBEDDED
CELERY_BEAT_SCHEDULER = "gateway_site.server.schedule:Scheduler"
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "erase-old-secrets": {"task": "organization.tasks.erase_old_secrets", "schedule": timedelta(minutes=10)},
    "prune-idempotency": {"task": "organization.tasks.prune_idempotency", "schedule": timedelta(hours=6)},
    "verify-audit-trail": {"task": "organization.tasks.verify_audit_trail", "schedule": timedelta(hours=6)},
    "prune-verdicts": {"task": "policies.tasks.prune_verdicts", "schedule": timedelta(hours=6)},
    # What nobody took in time is in the next one: a worker that was away must not work off a backlog.
    "roll-up-costs": {
        "task": "billing.tasks.roll_up_costs",
        "schedule": timedelta(minutes=1),
        "options": {"expires": 60},
    },
    "probe-backends": {
        "task": "inference.tasks.probe_backends",
        "schedule": timedelta(minutes=1),
        "options": {"expires": 60},
    },
    "audit-ledger": {
        "task": "billing.tasks.audit_ledger",
        "schedule": timedelta(hours=6),
        "options": {"expires": 6 * 3600},
    },
    "sweep-reservations": {
        "task": "billing.tasks.sweep_reservations",
        "schedule": timedelta(seconds=GATEWAY_SWEEP_SECONDS),
        "options": {"expires": GATEWAY_SWEEP_SECONDS},
    },
}

# --- REST and its document ---------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["organization.authentication.AdminKeyAuthentication"],
    # A view that names no permission is refused, not open.
    "DEFAULT_PERMISSION_CLASSES": ["organization.permissions.HasPermission"],
    "DEFAULT_PARSER_CLASSES": ["gateway_site.api.bodies.strict_json.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "gateway_site.api.negotiation.AlwaysJSON",
    "DEFAULT_SCHEMA_CLASS": "gateway_site.api.openapi.document.GatewaySchema",
    "EXCEPTION_HANDLER": "gateway_site.api.exception_handler.handle",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Inference Gateway and Organization Administration API",
    "DESCRIPTION": "An OpenAI-compatible gateway for model inference with organization administration.",
    # Unspecified: deprecation-policy. The spec gives this number and no rule for changing it.
    "VERSION": "0.2.0",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    # An edit must name the revision that it was made from; split, no field of a PATCH would be required.
    "COMPONENT_SPLIT_PATCH": False,
    "PREPROCESSING_HOOKS": ["inference.schema.add_generation_routes"],
    "POSTPROCESSING_HOOKS": ["gateway_site.api.openapi.document.finish_document"],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}

# --- console, static files ---------------------------------------------------------------------------

STATIC_URL = "static/"
STATIC_ROOT = Path(env.text("GATEWAY_STATIC_ROOT", str(GATEWAY_DATA_DIR / "static")))
# A web server may serve them too, as another user.
FILE_UPLOAD_PERMISSIONS, FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o644, 0o755
LOGIN_REDIRECT_URL = "admin:index"
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "gateway_site.console.login.password_rules.MaximumLengthValidator"},
    {"NAME": "gateway_site.console.login.password_rules.VarietyValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# Behind a proxy that ends TLS; the embedded default is plain HTTP on loopback.
GATEWAY_HTTPS = env.boolean("GATEWAY_HTTPS", False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = GATEWAY_HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
# How long a person stays logged in to the console.
SESSION_COOKIE_AGE = 3600 * env.integer("GATEWAY_SESSION_HOURS", 12, minimum=1)
SECURE_HSTS_SECONDS = 31_536_000 if GATEWAY_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.boolean("GATEWAY_HSTS_SUBDOMAINS", False)
SECURE_HSTS_PRELOAD = env.boolean("GATEWAY_HSTS_PRELOAD", False)
# To speak for other hosts of the domain is the domain owner's to choose (W005, W021).
SILENCED_SYSTEM_CHECKS += ["security.W005", "security.W021"]
if GATEWAY_HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# People are sent on to https. Programs are refused by `gateway_site.api.https_only`; probes are let through.
SECURE_SSL_REDIRECT = GATEWAY_HTTPS
SECURE_REDIRECT_EXEMPT = [r"^v1/", r"^healthz$", r"^readyz$"]
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"

# --- language, time, logs ----------------------------------------------------------------------------

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
LOGGING = logging_settings(LOG_LEVEL)
