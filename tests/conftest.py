"""Rules of every test run: a skipped or expectedly failing test is a failure, and random examples stay the same."""

import gc
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_configure() -> None:
    """Let programs that tests start be interrupted, also where tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Whatever collecting tests has imported stays: the garbage collector need not look through it again and again."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let everything be collected at the end, as libraries that count their objects expect."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, which counts as a failure here: {report.longrepr}"
    return report
