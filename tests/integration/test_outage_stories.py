"""The API server goes away: no verb decides on an old picture, and all decide on the current one soon afterwards."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.chaos.proxy import REFUSED, SILENT, FaultProxy, Rule, kubeconfig_through
from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport

NODES: Final = ["node-a", "node-b"]
SCORES: Final = [{"Host": name, "Score": 0} for name in NODES]


class Street:
    """Two nodes in two zones, a Homeport behind a proxy, and a pod that goes where fewer of its kind are."""

    def __init__(self, plane: ControlPlane, proxy: FaultProxy, homeport: Homeport, kubeconfig: Path) -> None:
        self.client = plane.client
        self.proxy = proxy
        self.homeport = homeport
        self.kubeconfig = kubeconfig
        self._http = httpx.Client(base_url=homeport.url, trust_env=False, timeout=10)
        self._spread = [objects.spread({"app": "web"})]
        self._made = 0
        self.asking = self._pod()

    def close(self) -> None:
        self._http.close()

    def _pod(self, node: str | None = None) -> dict[str, Any]:
        self._made += 1
        return self.client.create(
            objects.pod(
                f"web-{self._made}", labels={"app": "web"}, spread_constraints=self._spread, node_name=node or ""
            )
        )

    def crowd(self, node: str, pods: int) -> None:
        """Somebody places pods there, past Homeport."""
        for _ in range(pods):
            self._pod(node)

    def post(self, verb: str, **body: Any) -> tuple[int, Any]:
        answer = self._http.post(f"/{verb}", json=body)
        return answer.status_code, answer.json() if answer.content else None

    def filter(self) -> Any:
        status, answer = self.post("filter", Pod=self.asking, NodeNames=NODES)
        assert status == 200
        return answer["Error"] or answer["NodeNames"]

    def is_ready(self) -> bool:
        return self._http.get("/readyz").is_success

    def wait_until_too_old(self) -> None:
        self.client.wait_for(lambda: not self.is_ready(), what="the picture to be too old")

    def assert_no_verb_guesses(self) -> None:
        """Each answers at once, in the way that is defined for a picture that cannot be used."""
        meta = self.asking["metadata"]
        victims = {"node-a": {"Pods": [{"UID": "somebody"}], "NumPDBViolations": 0}}
        binding = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": "node-a"}
        told = self.post("filter", Pod=self.asking, NodeNames=NODES)
        assert told[0] == 200
        assert told[1]["Error"].startswith("homeport: nothing heard of")
        assert self.post("prioritize", Pod=self.asking, NodeNames=NODES) == (200, SCORES)
        assert self.post("preempt", Pod=self.asking, NodeNameToMetaVictims=victims) == (500, None)
        status, bound = self.post("bind", **binding)
        assert (status, bound["Error"].startswith("homeport: nothing heard of")) == (200, True)
        assert self.client.node_of(meta["name"]) == ""

    def first_decision(self) -> Any:
        """The first filter answer that is a verdict."""
        return self.client.wait_for(lambda: found if isinstance(found := self.filter(), list) else None)


@pytest.fixture
def street(plane: ControlPlane, tmp_path: Path) -> Iterator[Street]:
    with _street(plane, tmp_path) as found:
        yield found


@contextmanager
def _street(plane: ControlPlane, folder: Path) -> Iterator[Street]:
    for name in NODES:
        plane.client.create_node(objects.node(name, zone=f"zone-{name[-1]}"))
    with FaultProxy(plane.server) as proxy:
        kubeconfig = kubeconfig_through(proxy, plane.kubeconfig, folder / "through")
        config = folder / "homeport.yaml"
        config.write_text("{apiVersion: homeport.dev/v1alpha1, kind: HomeportConfiguration, maxFeedAge: 5s}")
        with Homeport(kubeconfig, folder, [f"--config={config}"]) as homeport:
            street = Street(plane, proxy, homeport, kubeconfig)
            try:
                street.crowd("node-a", 1)
                plane.client.wait_for(lambda: street.filter() == ["node-b"], what="the crowd to be seen")
                yield street
            finally:
                street.close()


@pytest.mark.parametrize(
    "rule", [pytest.param(SILENT, id="half-open"), pytest.param(REFUSED, id="refused", marks=pytest.mark.long)]
)
def test_an_outage(street: Street, rule: Rule) -> None:
    """Every connection is lost, pods are placed meanwhile, and the first verdict afterwards counts them."""
    with street.proxy.during(rule):
        street.crowd("node-b", 2)
        street.wait_until_too_old()
        street.assert_no_verb_guesses()

    assert street.first_decision() == ["node-a"]
    lists = [feed["objects"] for kind, feed in street.homeport.get("/api/v1/status")["feeds"].items() if "Pod" in kind]
    assert lists[0] == 4


def test_an_outage_is_one_story_in_the_log(street: Street) -> None:
    """Whatever number of kinds is watched: away, with its address and cause, and back, with how long it was away."""
    with street.proxy.during(REFUSED):
        street.client.wait_for(lambda: "API server away" in street.homeport.log(), what="the outage to be told")
    street.client.wait_for(lambda: "API server back" in street.homeport.log(), what="its end to be told")

    told = [it for it in map(json.loads, street.homeport.log().splitlines()) if it["event"].startswith("API server")]
    assert ["API server away", "API server back"] == [it["event"] for it in told]
    assert {f"https://127.0.0.1:{street.proxy.port}"} == {it["address"] for it in told}
    assert ("v1 Pod" in told[0]["kinds"], True) == ("v1 Node" in told[0]["kinds"], bool(told[0]["cause"]))
    assert told[1]["seconds"] >= told[0]["seconds"] >= 2
    assert ["snapshot complete"] == [
        it["event"] for it in map(json.loads, street.homeport.log().splitlines()) if "objects" in it
    ]


def test_the_api_server_is_replaced_and_knows_nobody(street: Street, plane: ControlPlane) -> None:
    """It comes back on its data, refuses the watches of before and the token; the file holds the new one."""
    plane.change_token()
    kubeconfig_through(street.proxy, plane.kubeconfig, street.kubeconfig)
    street.crowd("node-b", 2)

    plane.client.wait_for(lambda: street.filter() == ["node-a"], what="a verdict on what is there now")
    meta = street.asking["metadata"]
    binding = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": "node-a"}
    assert street.post("bind", **binding) == (200, {"Error": ""})
    assert plane.client.node_of(meta["name"]) == "node-a"
