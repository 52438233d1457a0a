"""Takes the pictures of README and docs, and measures how long the browser draws 5,000 nodes.

make screenshots
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from playwright.sync_api import Page, ViewportSize, sync_playwright

from tests.api.service import ROOT, SAMPLE
from tests.browser.clusters import many_nodes
from tests.debian import CHROMIUM
from tests.served import served

IMAGES: Final = ROOT / "docs" / "images"
ZONE: Final = "topology.kubernetes.io%2Fzone"
PICTURES: Final = {
    "cluster": ("/", "light"),
    "cluster-dark": ("/", "dark"),
    "pod": ("/pod/machines/virt-launcher-cache01-x7k2p", "light"),
    "workload": ("/workload/shop/Deployment/web", "light"),
    "zone": (f"/zone/{ZONE}/eu-1a", "light"),
}
SAVED_AT: Final = datetime(2026, 11, 2, 10, 30, tzinfo=UTC).timestamp()
"""Date of the file in the pictures, because that of a checkout changes."""

ROUNDS: Final = 7
_DRAWN: Final = """async () => {
  const begun = performance.now();
  location.hash = "#/";
  await new Promise((done) => {
    const watch = new MutationObserver(() => document.querySelectorAll("svg.cells a").length >= 5000 && done());
    watch.observe(document.getElementById("page"), { childList: true, subtree: true });
  });
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - begun;
}"""


def main() -> None:
    """Write the pictures, and print the times."""
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        sample = Path(shutil.copy(SAMPLE, folder))
        os.utime(sample, (SAVED_AT, SAVED_AT))
        with served(Path(folder), "--cluster", sample) as http:
            for name, (route, scheme) in PICTURES.items():
                page = _page(browser, scheme)
                _open(page, str(http.base_url), route)
                page.screenshot(path=IMAGES / f"{name}.png")
                page.context.close()
        file = Path(folder) / "cluster.json"
        file.write_text(json.dumps(many_nodes(5000)))
        with served(Path(folder), "--cluster", file) as http:
            times = [_time(_page(browser, "light"), str(http.base_url)) for _ in range(ROUNDS)]
        browser.close()
    print(f"5,000 nodes, from the click to the second frame: median {median(times):.0f} ms, most {max(times):.0f}")


def _page(browser: Any, scheme: str) -> Page:
    page: Page = browser.new_context(
        viewport=ViewportSize(width=1100, height=760), color_scheme=scheme, reduced_motion="reduce"
    ).new_page()
    return page


def _open(page: Page, base: str, route: str) -> None:
    page.goto(f"{base.rstrip('/')}/ui/#{route}")
    page.wait_for_selector("main:not([aria-busy]) h1")


def _time(page: Page, base: str) -> float:
    _open(page, base, "/")  # the answers are in the cache of the page
    _open(page, base, "/profile")
    return float(page.evaluate(_DRAWN))


if __name__ == "__main__":
    main()
