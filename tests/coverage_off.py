"""Programs whose disk is full by design cannot keep what coverage.py counts."""

import os

STARTS_COVERAGE = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")


def without_coverage() -> dict[str, str]:
    """Return this environment, in which a program is started without coverage.py."""
    return {name: value for name, value in os.environ.items() if name not in STARTS_COVERAGE}
