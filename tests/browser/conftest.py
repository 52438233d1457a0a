"""A browser, and Homeport with the sample cluster and with 5,000 nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from tests.api.service import SAMPLE
from tests.browser.clusters import many_nodes
from tests.debian import CHROMIUM
from tests.served import served

NORMAL: Final = ViewportSize(width=1280, height=900)
PHONE: Final = ViewportSize(width=375, height=800)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Homeport with the sample cluster."""
    with served(tmp_path_factory.mktemp("sample"), "--cluster", SAMPLE) as http:
        yield str(http.base_url).rstrip("/")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Homeport with 5,000 nodes."""
    folder: Path = tmp_path_factory.mktemp("large")
    file = folder / "cluster.json"
    file.write_text(json.dumps(many_nodes(5000)))
    with served(folder, "--cluster", file) as http:
        yield str(http.base_url).rstrip("/")


class Watched:
    """A page in the browser with everything that it complains about."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda it: self.complaints.append(it.text) if it.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda it: self.complaints.append(str(it)))

    def open(self, base: str, route: str) -> Page:
        self.page.goto(f"{base}/ui/#{route}")
        self.page.wait_for_selector("main:not([aria-busy]) h1")
        return self.page


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Watched]:
    """A page in a context with these options. Requests that a test answers itself are finished before it is closed."""
    context = browser.new_context(**options)
    made = Watched(context)
    try:
        yield made
    finally:
        made.page.unroute_all(behavior="wait")
        context.close()


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    """A page of normal size. At the end it has complained about nothing: no error, no warning, no report of the CSP."""
    with opened(browser, viewport=NORMAL) as made:
        yield made
    assert [] == made.complaints
