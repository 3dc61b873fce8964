"""The settings as they are, with what only costs time taken out."""

from __future__ import annotations

from gateway_site.settings import *  # noqa: F403
from gateway_site.settings import DATABASES, GATEWAY_DATA_DIR

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

_database = DATABASES["default"]
if _database["ENGINE"].endswith("sqlite3"):
    # A file, because threads and other processes open it too; in memory each would see its own.
    _database["TEST"] = {"NAME": str(GATEWAY_DATA_DIR / "test.sqlite3")}
    # What was committed survives the death of a process, and no test cuts the power.
    _database["OPTIONS"]["init_command"] += "; PRAGMA synchronous=OFF;"

# A loaded machine is not a database that is away; tests of the clock set their own.
GATEWAY_DATABASE_WAIT_SECONDS = 15
