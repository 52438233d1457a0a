"""What every test run keeps to."""

import os
from collections.abc import Generator
from pathlib import Path
from typing import Final, TypeVar

import pytest
import structlog
from hypothesis import settings

INTEGRATION: Final = Path(__file__).parent / "integration"
PATIENCE_SECONDS: Final = 360
MUST_RUN: Final = os.environ.get("CI", "").lower() in {"1", "true"}
REFUSED: Final = "skipped or expected to fail, and CI lets nothing through unseen: "

# In CI the parent is Hypothesis' own profile for CI: the same examples every time.
settings.register_profile("short", settings.default, deadline=None, max_examples=25)
settings.register_profile("long", settings.default, deadline=None, max_examples=100)
settings.load_profile("short")

ReportT = TypeVar("ReportT", pytest.TestReport, pytest.CollectReport)


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Generator[None]:
    """A command run inside a test sets up logs on the standard error of that test, which the next one finds closed."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def nobodys_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No kubeconfig, no service account and no kubectl; the folder that is HOME, and all of PATH."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HOMEPORT_SERVER", "HOMEPORT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below tests/integration needs the control plane, and on a busy machine some patience."""
    for item in items:
        if item.path.is_relative_to(INTEGRATION):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(PATIENCE_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _unskipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _unskipped((yield))


def _unskipped(report: ReportT) -> ReportT:
    """In CI a skip or an expected failure is a failure: what was not tested must be seen."""
    if MUST_RUN and report.skipped:
        report.outcome = "failed"
        report.longrepr = REFUSED + str(getattr(report, "wasxfail", report.longrepr))
    return report
