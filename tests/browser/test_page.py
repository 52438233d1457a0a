"""The page in a real browser: every route, keyboard, dark, a phone, barriers, failures, hostile names."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Browser, Route

from app.commands import report
from app.commands.service import Server
from tests.api.service import SAMPLE
from tests.browser.clusters import LONGEST, MARKUP, hostile
from tests.browser.conftest import NORMAL, PHONE, Watched, opened
from tests.browser.screenshots import SAVED_AT
from tests.served import served

ZONE: Final = quote("topology.kubernetes.io/zone", safe="")
ROUTES: Final = {
    "/": "The cluster, as Homeport sees it",
    "/pod/shop/web-urgent": "Pod shop/web-urgent",
    "/pod/shop/web-urgent?node=node-a1": "Pod shop/web-urgent",
    "/workload/shop/Deployment/web": "Deployment shop/web",
    "/node/node-b2": "Node node-b2",
    f"/zones/{ZONE}": "What if a zone is lost?",
    f"/zone/{ZONE}/eu-1a": "What if eu-1a is lost?",
    "/profile": "Profile",
    "/status": "Homeport ",
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_deep_link_opens_its_page(watched: Watched, sample: str, route: str) -> None:
    page = watched.open(sample, route)

    assert ROUTES[route] in page.locator("h1").inner_text()
    assert page.title().endswith(" - Homeport")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("route", ROUTES)
def test_there_are_no_barriers(browser: Browser, sample: str, route: str, scheme: Any) -> None:
    with opened(browser, viewport=NORMAL, color_scheme=scheme) as watched:
        results = Axe().run(watched.open(sample, route))

    assert [] == [(it["id"], [node["html"] for node in it["nodes"]]) for it in results.response["violations"]]


@pytest.mark.parametrize("route", ROUTES)
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, sample: str, route: str) -> None:
    with opened(browser, viewport=PHONE) as watched:
        width = watched.open(sample, route).evaluate("document.documentElement.scrollWidth")

    assert width <= PHONE["width"]


def test_dark_is_dark(browser: Browser, sample: str) -> None:
    colours = []
    for scheme in ("light", "dark"):
        with opened(browser, color_scheme=scheme) as watched:
            page = watched.open(sample, "/")
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert ["rgb(255, 255, 255)", "rgb(20, 23, 28)"] == colours


def test_a_newcomer_finds_out_why_a_pod_waits_and_what_losing_a_zone_would_do(watched: Watched, sample: str) -> None:
    page = watched.open(sample, "/")

    page.locator("main").get_by_role("link", name="shop/web-urgent").first.click()
    page.get_by_role("heading", name="What would help").wait_for()
    assert "PodTopologySpread" in page.get_by_role("region", name="Nodes by reason").inner_text()

    page.get_by_role("link", name="Cluster").click()
    page.get_by_role("link", name="What if eu-1a is lost?").click()
    assert "Deployment shop/web" in page.get_by_role("region", name="Workloads with pods in the zone").inner_text()


def test_the_keyboard_alone_opens_a_pod(watched: Watched, sample: str) -> None:
    page = watched.open(sample, "/")
    page.keyboard.press("Tab")
    assert "Skip to the page" == page.evaluate("document.activeElement.textContent")

    page.keyboard.press("Enter")
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href') ?? ''").startswith("#/pod/"):
            break
    page.keyboard.press("Enter")

    page.get_by_role("heading", name="Why no node fits").wait_for()
    assert "MAIN" == page.evaluate("document.activeElement.tagName")


def test_a_drain_is_computed_only_on_a_click(watched: Watched, sample: str) -> None:
    asked: list[str] = []
    watched.page.on("request", lambda it: asked.append(it.url))
    page = watched.open(sample, "/node/node-b2")
    assert [] == [it for it in asked if "/drain" in it]

    page.get_by_role("button", name="Compute the drain").click()

    page.get_by_role("region", name="Where each pod goes").wait_for()


def test_a_poll_keeps_open_details_and_the_focus(watched: Watched, sample: str) -> None:
    page = watched.open(sample, "/")
    page.get_by_text("The same as a table").click()
    page.get_by_role("link", name="node-a2", exact=True).focus()
    answer = page.request.get(f"{sample}/api/v1/nodes").json()
    answer["zones"][0]["nodes"][1][1] = 77
    overview = page.request.get(f"{sample}/api/v1/overview").json()
    changed = {**overview, "nodes": '"new"'}
    page.route("**/api/v1/overview", lambda route: route.fulfill(json=changed, headers={"ETag": '"newer"'}))
    page.route("**/api/v1/nodes", lambda route: route.fulfill(json=answer, headers={"ETag": '"new"'}))

    page.get_by_role("cell", name="77 %").wait_for(timeout=15_000)

    assert "node-a2" == page.evaluate("document.activeElement.textContent")


def test_an_api_that_answers_503_is_shown(browser: Browser, sample: str) -> None:
    failure = {"kind": "Status", "message": "homeport: the snapshot is incomplete"}
    with opened(browser) as watched:
        watched.page.route("**/api/v1/**", lambda route: route.fulfill(status=503, json=failure))

        page = watched.open(sample, "/")

        assert "homeport: the snapshot is incomplete" == page.get_by_role("alert").inner_text()
        assert "the snapshot is incomplete" in page.get_by_role("status").inner_text()


def test_a_stale_snapshot_is_said(watched: Watched, sample: str) -> None:
    def stale(route: Route) -> None:
        answer = httpx.get(route.request.url, trust_env=False).json()
        route.fulfill(json={**answer, "problem": "the last message of the watch is 95 s old"})

    watched.page.route("**/api/v1/status", stale)

    page = watched.open(sample, "/")

    page.locator("#fresh.bad").wait_for()
    assert "the last message of the watch is 95 s old" in page.get_by_role("status").inner_text()


def test_the_page_works_behind_a_prefix(watched: Watched, sample: str) -> None:
    prefix = "/api/v1/namespaces/homeport/services/http:homeport-operator:http/proxy"

    def proxied(route: Route) -> None:
        answer = httpx.get(route.request.url.replace(prefix, ""), trust_env=False)
        route.fulfill(status=answer.status_code, headers=dict(answer.headers), body=answer.content)

    watched.page.route(f"**{prefix}/**", proxied)

    page = watched.open(sample + prefix, "/node/node-b2")

    assert "Node node-b2" == page.locator("h1").inner_text()


@contextmanager
def _serving(folder: Path, cluster: dict[str, Any]) -> Iterator[str]:
    file = folder / "cluster.json"
    file.write_text(json.dumps(cluster))
    with served(folder, "--cluster", file) as http:
        yield str(http.base_url).rstrip("/")


def test_what_a_pod_with_a_home_is_told(watched: Watched, sample: str) -> None:
    text = watched.open(sample, "/pod/machines/virt-launcher-cache01-x7k2p").locator("main").inner_text()

    assert "With this change it would fit on 11 nodes." in text
    assert "release the home: then 11 nodes would fit" in text
    assert "Cost: the VM starts elsewhere and gets a new home. Homeport does not touch volumes" in text
    assert "Undo: homeport homes move virtualmachine/cache01 node-a4 -n machines; it moves no running pod." in text
    assert "uncordon node-a4 alone does not help: the pod does not tolerate the taint dedicated=gpu:NoSchedule." in text
    both = "To keep the home: uncordon node-a4, and also tolerate or remove the taint dedicated=gpu:NoSchedule."
    assert both in text
    assert "hard: the pod waits; soft would allow other nodes" in text


def test_a_home_that_more_than_a_cordon_closes_gets_no_advice_to_keep_it(watched: Watched, sample: str) -> None:
    route = "/pod/machines/virt-launcher-cache01-x7k2p"
    answer = httpx.get(f"{sample}/api/v1/explain{route.removeprefix('/pod')}", trust_env=False).json()
    full = {"code": "Unschedulable", "plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"]}
    answer["groups"][1]["reasons"].append(full)
    watched.page.route("**/api/v1/explain/**", lambda it: it.fulfill(json=answer))

    text = watched.open(sample, route).locator("main").inner_text()

    assert "alone does not help" in text
    assert "To keep the home" not in text


def test_pods_that_fit_are_counted_once_and_their_scheduler_is_named(watched: Watched, sample: str) -> None:
    page = watched.open(sample, "/")
    text = page.locator("main").inner_text()

    assert "5 pods fit a node but are not placed yet: check that default-scheduler runs" in text
    assert "NodeUnschedulable: node(s) were unschedulable (and other reasons)" in text
    page.locator(".tiles").get_by_role("link", name="is away or gone").click()
    assert "Homes that are away or gone" in page.evaluate("document.activeElement.innerText")


def test_a_reason_that_is_alone_has_no_others(watched: Watched, sample: str) -> None:
    answer = httpx.get(f"{sample}/api/v1/overview", trust_env=False).json()
    answer["pending"]["items"] = [{**answer["pending"]["items"][0], "total": 11}]
    watched.page.route("**/api/v1/overview", lambda it: it.fulfill(json=answer, headers={"ETag": '"alone"'}))

    text = watched.open(sample, "/").locator("main").inner_text()

    assert "the pod's home takes no pods now" in text
    assert "other reasons" not in text
    assert "not placed yet" not in text


def test_the_limit_is_not_over_the_limit_and_a_cordoned_node_is_not_preferred(watched: Watched, sample: str) -> None:
    page = watched.open(sample, "/workload/shop/Deployment/web")
    zones = page.get_by_role("region", name="Pods by topology.kubernetes.io/zone")
    nodes = page.get_by_role("region", name="Pods by kubernetes.io/hostname")

    assert ["eu-1a"] == [it.split()[0] for it in zones.locator("tr:has(.badge.bad)").all_inner_texts()]
    assert "not allowed: skew would be 2" in zones.locator("tr", has_text="eu-1b").inner_text()
    assert "fewest pods, but cordoned" in nodes.locator("tr", has_text="node-a4").inner_text()
    text = page.locator("main").inner_text()
    assert "the next pod can go to eu-1c, so it is not this rule alone that keeps 2 pods waiting." in text
    assert "Now the fullest has 3, and the emptiest 1." in text
    assert "DoNotSchedule only stops new pods; running pods stay where they are." in text


def test_times_of_a_saved_cluster_end_at_its_date(watched: Watched, tmp_path: Path) -> None:
    file = Path(shutil.copy(SAMPLE, tmp_path))
    os.utime(file, (SAVED_AT, SAVED_AT))
    with served(tmp_path, "--cluster", file) as http:
        page = watched.open(str(http.base_url).rstrip("/"), "/")

        page.get_by_role("status").get_by_text("file of 2026-11-02 10:30 UTC").wait_for()
        assert "2 h" in page.locator("tr", has_text="shop/web-urgent").inner_text()
        text = page.locator("main").inner_text()
        assert "11 nodes would fit but for this." in text
        assert "Events of that time may be gone." in text


def test_a_zone_names_lost_pods_and_what_would_help(watched: Watched, sample: str) -> None:
    page = watched.open(sample, f"/zone/{ZONE}/eu-1a")

    assert "1 would be lost for good: batch/crunch-a1." in page.locator(".verdict").inner_text()
    change = page.locator("main li").first.inner_text()
    assert "spec.template.spec.topologySpreadConstraints[0].nodeTaintsPolicy: Honor; then 0 would wait." in change
    assert "A change of the template restarts all its pods." in change
    row = page.get_by_role("region", name="Workloads with pods in the zone").locator("tr", has_text="shop/web")
    assert ["6", "eu-1a\xa03", "eu-1b\xa02", "eu-1c\xa01"] == row.locator("td").nth(1).inner_text().split("\n")

    page.get_by_role("link", name="eu-1c").click()
    page.get_by_text("1 would stay Terminating").wait_for()


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    with _serving(tmp_path, hostile()) as url, opened(browser, viewport=PHONE) as watched:
        for route in ("/", f"/node/{LONGEST}", f"/pod/default/{LONGEST}", "/pod/default/waits", f"/zones/{ZONE}"):
            page = watched.open(url, route)

            assert (0, PHONE["width"]) == (
                page.locator("img").count(),
                page.evaluate("document.documentElement.scrollWidth"),
            )
        assert MARKUP in watched.open(url, "/").locator("main").inner_text()
    assert [] == watched.complaints


def test_a_route_that_does_not_exist_says_so(watched: Watched, sample: str) -> None:
    watched.page.goto(f"{sample}/ui/#/nowhere")

    assert "There is no such page." == watched.page.locator("main p").inner_text()


def test_a_missing_pod_is_said_with_near_names(browser: Browser, sample: str) -> None:
    with opened(browser) as watched:
        page = watched.open(sample, "/pod/shop/web-urgen")

        assert "web-urgent" in page.get_by_role("alert").inner_text()


def test_five_thousand_nodes_can_be_seen(watched: Watched, large: str) -> None:
    page = watched.open(large, "/")

    assert 5000 == page.locator("svg.cells a").count()
    assert "default/huge" in page.locator("main").inner_text()


def test_a_report_needs_no_server(watched: Watched, sample: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report.html(report.answers_of(Server(sample)), datetime.now(UTC)))
    asked: list[str] = []
    watched.page.on("request", lambda it: asked.append(it.url))

    for route, heading in ROUTES.items():
        if "?" not in route:
            watched.page.goto(f"{file.as_uri()}#{route}")
            watched.page.wait_for_selector("main:not([aria-busy]) h1")
            assert heading in watched.page.locator("h1").inner_text()
    assert {file.as_uri()} == {it.partition("#")[0] for it in asked}
