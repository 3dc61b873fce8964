"""
Rows to measure with, in the database of the environment, each in a new organization.

    python -m tests.benchmarks.generated_data costs ORGANIZATION --lines 1000000
    python -m tests.benchmarks.generated_data activity ORGANIZATION --requests 1000000 [--verdicts]

Each says with `--help` what else can be chosen.
"""

from __future__ import annotations

import os
import sys

import django


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_site.settings")
    django.setup()

    from tests.benchmarks.generated_data.activity import GenerateActivity
    from tests.benchmarks.generated_data.costs import GenerateCosts

    commands = {"activity": GenerateActivity, "costs": GenerateCosts}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit((__doc__ or "").strip())
    commands[sys.argv[1]]().run_from_argv(["python -m tests.benchmarks.generated_data", *sys.argv[1:]])


if __name__ == "__main__":
    main()
