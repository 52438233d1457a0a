"""A real Prometheus scrapes a real Homeport: every panel shows something, and no alert fires without a reason."""

from __future__ import annotations

import json
import math
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.api.service import SAMPLE, example
from tests.certificates import Authority
from tests.cluster.observability.programs import program, promtool
from tests.cluster.observability.test_promtool import replaced
from tests.controlplane.processes import ProcessGroup, free_port
from tests.observability.files import ALERTS, alerts, dashboard
from tests.served import started

START_SECONDS: Final = 60
TARGET: Final = {"namespace": "homeport", "pod": "homeport-0"}
NEEDS_REPLICAS: Final = "several replicas, and an API server for their Lease"
WITHOUT_DATA: Final = {
    ("At a glance", "Leaders", "A"): NEEDS_REPLICAS,
    ("Decisions", "Request duration by verb", "C"): NEEDS_REPLICAS,
    ("Binds", "Batch delay", "A"): "an API server to bind at",
    ("Binds", "Waits at Permit", "A"): "a plugin that makes pods wait",
    ("Replicas", "Leader", "A"): NEEDS_REPLICAS,
    ("Problems", "Kubernetes Events", "A"): "an API server to write them to",
    ("Replicas", "Requests forwarded to the leader", "A"): NEEDS_REPLICAS,
    ("Decisions", "Nominations and preemptions", "B"): "an API server to nominate at",
    ("Decisions", "Nominations and preemptions", "C"): "an API server to evict pods at",
    ("Plugins", "Plugin faults", "B"): "a plugin whose scores are out of range",
}
"""Queries that one replica on a saved cluster cannot answer, and what it would take."""


class Homeport:
    """One that serves the sample cluster over TLS, with plain pages."""

    def __init__(self, port: int | None, pages: int, trusted: ssl.SSLContext) -> None:
        self.pages = pages
        self._port = port
        self._trusted = trusted

    def metrics(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.pages}/metrics", trust_env=False).raise_for_status().text

    def call_all(self) -> None:
        """Every verb with every kind of outcome that the sample cluster has, and callers who are turned away."""
        url = f"https://127.0.0.1:{self._port}"
        foreign = example("filter-spread")
        foreign["Pod"]["spec"]["schedulerName"] = "nobody-here"
        with httpx.Client(base_url=url, verify=self._trusted, trust_env=False) as http:
            for verb, body in (
                ("filter", example("filter-spread")),
                ("filter", {**example("filter-spread"), "NodeNames": ["node-a1", "node-a2"]}),
                ("filter", {**example("filter-home"), "NodeNames": ["node-a1"]}),
                ("filter", foreign),
                ("prioritize", example("prioritize-spread")),
                ("preempt", example("preempt")),
                ("bind", example("bind-crowded")),
                ("bind", example("bind-spread")),
                ("bind", example("bind-first-boot")),
                ("bind", {}),
            ):
                http.post(f"/{verb}", content=json.dumps(body)).raise_for_status()
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{self._port}/", trust_env=False).raise_for_status()


class Prometheus:
    """A server that scrapes twice a second, with the alerts of the chart."""

    def __init__(self, folder: Path, processes: ProcessGroup, target: int) -> None:
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {"job_name": "homeport", "static_configs": [{"targets": [f"127.0.0.1:{target}"], "labels": TARGET}]}
            ],
        }
        written = folder / "prometheus.yaml"
        written.write_text(yaml.safe_dump(config))
        command = [
            program("prometheus"),
            f"--config.file={written}",
            f"--storage.tsdb.path={folder / 'series'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        server = processes.start("prometheus", command)
        server.wait_ready(lambda: answers(f"{self._url}/-/ready"), START_SECONDS)

    def ask(self, expression: str) -> list[Any]:
        """What a query is answered now."""
        return list(self._get("query", query=expression)["result"])

    def rules(self) -> dict[str, Any]:
        return {rule["name"]: rule for group in self._get("rules")["groups"] for rule in group["rules"]}

    def has_data(self, expression: str) -> bool:
        """Whether there is a number among the samples."""
        return any(not math.isnan(float(it["value"][1])) for it in self.ask(expression))

    def _get(self, page: str, **parameters: str) -> Any:
        found = httpx.get(f"{self._url}/api/v1/{page}", params=parameters, trust_env=False).raise_for_status().json()
        assert "success" == found["status"]
        return found["data"]


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=2).is_success
    except httpx.TransportError:
        return False


def queries() -> list[tuple[tuple[str, str, str], str]]:
    """Each query of the dashboard with its row, its panel and its letter."""
    row, found = "", []
    for panel in dashboard()["panels"]:
        row = panel["title"] if panel["type"] == "row" else row
        found += [((row, panel["title"], it["refId"]), it["expr"]) for it in panel.get("targets", ())]
    return found


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessGroup]:
    group = ProcessGroup(tmp_path_factory.mktemp("logs"))
    yield group
    group.close()


@pytest.fixture(scope="module")
def homeport(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homeport]:
    folder, pages = tmp_path_factory.mktemp("homeport"), free_port()
    authority = Authority(folder)
    certificate, key = authority.issue("server", "127.0.0.1")
    flags = {
        "cluster": SAMPLE,
        "operator-port": pages,
        "operator-tls": "false",
        "tls-cert-file": certificate,
        "tls-private-key-file": key,
    }
    config = folder / "homeport.yaml"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config.write_text(yaml.safe_dump({**head, "profiles": [{"schedulerName": "default-scheduler"}]}))
    written = (f"--{name}={value}" for name, value in flags.items())
    with started(folder, f"--config={config}", *written, ready_at=pages) as (_, http):
        yield Homeport(http.base_url.port, pages, ssl.create_default_context(cafile=authority.file))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, processes: ProcessGroup, homeport: Homeport) -> Prometheus:
    """It has seen the service before, between and after some calls: what begins at 0 is seen to grow."""
    found = Prometheus(tmp_path_factory.mktemp("prometheus"), processes, homeport.pages)
    asked = "sum(increase(homeport_requests_total[5m]))"
    until(lambda: found.has_data("homeport_ready"))
    homeport.call_all()
    until(lambda: found.has_data("homeport_requests_total"))
    homeport.call_all()
    until(lambda: float((found.ask(asked) or [{"value": (0, "0")}])[0]["value"][1]) > 0)
    return found


def until(holds: Callable[[], bool]) -> None:
    """Wait until it does. Raises ``TimeoutError``."""
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.2)


def test_every_panel_shows_something(prometheus: Prometheus) -> None:
    def empty() -> set[tuple[str, str, str]]:
        return {where for where, expr in queries() if not prometheus.has_data(replaced(expr))}

    with suppress(TimeoutError):
        until(lambda: empty() <= WITHOUT_DATA.keys())
    assert WITHOUT_DATA.keys() == empty()


def test_the_picture_is_that_of_the_sample_cluster(prometheus: Prometheus) -> None:
    nodes, homes = (
        {it["metric"].get("state", ""): float(it["value"][1]) for it in prometheus.ask(asked)}
        for asked in ('homeport_objects{kind="v1 Node"}', "homeport_homes")
    )

    assert {"": 12.0} == nodes
    assert homes == {"at_home": 2, "elsewhere": 0, "waiting": 2, "idle": 0, "node_gone": 0, "unrecorded": 0}


def test_labels_are_those_of_the_target(prometheus: Prometheus) -> None:
    (found,) = prometheus.ask("homeport_build_info")

    assert TARGET == {name: found["metric"][name] for name in TARGET}


def test_prometheus_evaluates_every_alert_and_none_fires(prometheus: Prometheus) -> None:
    until(lambda: all(it["health"] == "ok" for it in prometheus.rules().values()))
    rules = prometheus.rules()

    assert {it["alert"] for it in alerts()} == rules.keys()
    assert {} == {name: it["lastError"] for name, it in rules.items() if it.get("lastError")}
    assert [] == [name for name, it in rules.items() if it["state"] == "firing"]


def test_promtool_is_content_with_the_metrics(homeport: Homeport, prometheus: Prometheus) -> None:
    until(lambda: prometheus.has_data("homeport_requests_total"))
    assert "" == promtool("check", "metrics", given=homeport.metrics())
