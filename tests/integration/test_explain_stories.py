"""Ten stuck pods on a real control plane: explain says of each node what kube-scheduler says, or differs as documented.

kube-scheduler gives the first reason of each node: that of its own filters, which run first, else Homeport's.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS
from tests.controlplane import objects
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration import stuck
from tests.integration.explains import Explains
from tests.integration.service import Homeport, scheduler_config
from tests.integration.test_home_stories import HOME, boot, install_kubevirt
from tests.integration.test_spread_stories import WEB

NODES: Final = 6
HELD: Final = "held"
SPREAD: Final = [objects.spread(WEB)]
CORDONED: Final = "node(s) were unschedulable"
NO_CPU: Final = "Insufficient cpu"
SKEWED: Final = "node(s) didn't match pod topology spread constraints"
GRACE: Final = "node(s) were refused, because the grace period of the pod's home is not over"
TAINTED: Final = "node(s) had untolerated taint(s)"
ELSEWHERE: Final = "node(s) didn't match PersistentVolume's node affinity"
LEAVING: Final = "leaving"
IN_ORDER: Final = list(KUBE_SCHEDULER_DEFAULTS)


class Stage(Explains):
    """Six nodes, two for each zone a, b and c, and what explain and kube-scheduler say of pods."""

    def __init__(self, client: Client, homeport: Homeport, scheduler: Scheduler) -> None:
        super().__init__(client, homeport)
        self._scheduler = scheduler

    def make_nodes(self, **third: Any) -> None:
        """Make the nodes, and wait until kube-scheduler knows them; ``third``: fields of those in zone c."""
        for zone in "abc":
            for number in range(2):
                more = third if zone == "c" else {}
                self.client.create(objects.node(f"{zone}{number}", zone=f"zone-{zone}", **{"cpu": "8", **more}))

        self.client.wait_for(lambda: self._known_nodes() == NODES, what="kube-scheduler to know the nodes")

    def _known_nodes(self) -> int:
        log = self._scheduler.log()
        return log.count('"Add event for node"') - log.count('"Delete event for node"')

    def fill(self, *zones: str) -> None:
        """Let one of the pods that are spread run in each of the zones."""
        for zone in zones:
            self.client.create(objects.pod(f"runs-{zone}", labels=WEB, node_name=f"{zone}1"))


def first_reasons(explanation: Json) -> Mapping[str, int]:
    """For each reason, the number of nodes of which kube-scheduler would give it."""

    def turn(rejection: Json) -> int:
        ours = explanation["judges"][rejection["plugin"]] == "Homeport"
        return len(IN_ORDER) if ours else IN_ORDER.index(rejection["plugin"])

    counted: Counter[str] = Counter()
    for group in explanation["groups"]:
        assert group["count"] == len(group["nodes"])
        for reason in min(group["reasons"], key=turn)["reasons"]:
            counted[reason] += group["count"]
    return counted


def written_reasons(explanation: Json) -> Mapping[str, int]:
    """For each reason in kube-scheduler's message the number of nodes."""
    return {it["reason"]: it["count"] for it in explanation["scheduler"]["reasons"]}


def assert_equal(explanation: Json, expected: Mapping[str, int]) -> None:
    """Explain and kube-scheduler give the same reasons for the same numbers of nodes, and these are the expected."""
    assert ("NoNodeFits", [], []) == (
        explanation["verdict"],
        explanation["feasible"],
        explanation["scheduler"]["differences"],
    )
    assert expected == written_reasons(explanation) == first_reasons(explanation)


def opened(explanation: Json) -> dict[str, list[str]]:
    """The nodes that each remedy opens."""
    return {it["change"]: it["nodes"] for it in explanation["remedies"]}


def reasons_on(explanation: Json, node: str) -> set[str]:
    """All reasons of one node."""
    (group,) = (it for it in explanation["groups"] if node in it["nodes"])
    return {reason for it in group["reasons"] for reason in it["reasons"]}


@pytest.fixture(scope="module")
def homeport(running: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homeport]:
    """Homeport explains completely, and a stock kube-scheduler asks it; both know two schedulerNames."""
    folder: Path = tmp_path_factory.mktemp("explain")
    _, variables = stuck.homeport_settings(folder, "unused")
    holding = {"schedulerName": HELD, "plugins": {"multiPoint": {"enabled": [{"name": "Holds"}]}}}
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", "explain": "complete"}
    file = folder / "homeport.yaml"
    file.write_text(yaml.safe_dump({**head, "profiles": [{"schedulerName": "default-scheduler"}, holding]}))
    install_kubevirt(running.client)
    with Homeport(running.kubeconfig, folder, [f"--config={file}"], environment=variables) as homeport:
        yield homeport


@pytest.fixture
def stage(plane: ControlPlane, homeport: Homeport, scheduler: Scheduler) -> Iterator[Stage]:
    yield Stage(plane.client, homeport, scheduler)
    stuck.clear(plane.client)


@pytest.fixture(scope="module")
def scheduler(running: ControlPlane, homeport: Homeport) -> Iterator[Scheduler]:
    config = stuck.profiles(scheduler_config(homeport), ["default-scheduler", HELD])
    with running.start_scheduler(config) as scheduler:
        yield scheduler


def test_a_cordoned_home(stage: Stage) -> None:
    stage.make_nodes()
    stage.client.patch("Node", "a0", {"spec": {"unschedulable": True}})
    machine = objects.virtual_machine("db01")
    machine["metadata"]["annotations"] = {HOME: "a0"}

    found = stage.refused(boot(stage.client, stage.client.create(machine), "first"), NODES)

    assert_equal(found, {CORDONED: 1, GRACE: 5})
    assert {CORDONED, GRACE} == reasons_on(found, "a0")
    assert (["a0"], ["a1", "b0", "b1", "c0", "c1"]) == (
        opened(found)["uncordon a0"],
        opened(found)["release the home"],
    )


def test_no_cpu_and_skew_at_once(stage: Stage) -> None:
    """The constraint leaves zone c, which is too small. On a0 the pod has neither."""
    stage.make_nodes(cpu="4")
    stage.fill("a", "b")
    stage.client.create(objects.pod("large", node_name="a0", requests={"cpu": "7"}))
    stage.client.create(objects.pod("web", labels=WEB, requests={"cpu": "6"}, spread_constraints=SPREAD))

    found = stage.refused("web", NODES)

    assert_equal(found, {NO_CPU: 3, SKEWED: 3})
    assert {NO_CPU, SKEWED} == reasons_on(found, "a0")
    assert ["c0", "c1"] == opened(found)["request 4 cpu instead of 6"]


def test_a_tainted_domain(stage: Stage) -> None:
    """Zone c counts as an empty domain, and no pod may go there."""
    stage.make_nodes(taints=[objects.taint("example.com/gpu", "yes")])
    stage.fill("a", "b")
    stage.client.create(objects.pod("web", labels=WEB, spread_constraints=SPREAD))

    found = stage.refused("web", NODES)

    assert_equal(found, {TAINTED: 2, SKEWED: 4})
    honor = f"nodeTaintsPolicy: Honor in the constraint over {objects.ZONE_LABEL}"
    assert (["a0", "a1", "b0", "b1"], ["c0", "c1"]) == (
        opened(found)[honor],
        opened(found)["tolerate the taint example.com/gpu=yes:NoSchedule"],
    )


def test_a_pod_held_at_permit(stage: Stage) -> None:
    """kube-scheduler has chosen a node and writes nothing. Explain names the node, and the plugin that holds it up."""
    stage.make_nodes()
    stage.client.create(objects.pod("patient", scheduler_name=HELD))

    def held() -> Json | None:
        found = stage.explained("patient", NODES)
        return found if found["verdict"] == "HeldAtPermit" else None

    found = stage.client.wait_for(held, what="the pod to be held")

    node = found["heldAtPermit"]["node"]
    assert ({"node": node, "plugins": ["Holds"]}, None) == (found["heldAtPermit"], found["scheduler"])
    assert (6, []) == (len(found["feasible"]), found["remedies"])
    assert f"held at Permit by Holds: it is bound to {node} once they allow it" == found["summary"]
    assert ("", "") == (stage.client.node_of("patient"), stage.condition("patient"))


def test_a_pod_that_became_feasible_a_second_ago(stage: Stage, scheduler: Scheduler) -> None:
    """kube-scheduler, which is stopped meanwhile, has not tried it again: the difference is told."""
    stage.make_nodes(cpu="2")
    stage.client.create(objects.pod("large", requests={"cpu": "6"}, node_selector={objects.HOSTNAME_LABEL: "a0"}))
    assert "a0" == stage.client.wait_bound("large")
    stage.client.patch("Node", "a1", {"spec": {"unschedulable": True}})
    stage.client.create(objects.pod("web", requests={"cpu": "6"}, node_selector={objects.ZONE_LABEL: "zone-a"}))
    before = stage.refused("web", NODES)

    os.kill(scheduler.process.pid, signal.SIGSTOP)
    try:
        stage.client.delete("Pod", "large")

        def feasible() -> Json | None:
            found = stage.explained("web", NODES)
            return found if found["feasible"] else None

        found = stage.client.wait_for(feasible, what="the pod to fit")
    finally:
        os.kill(scheduler.process.pid, signal.SIGCONT)

    assert ("Fits", ["a0"], "1 of 6 nodes fit") == (found["verdict"], found["feasible"], found["summary"])
    assert before["scheduler"]["message"] == found["scheduler"]["message"]
    assert "kube-scheduler found no node; 1 nodes fit now" in found["scheduler"]["differences"]
    assert "a0" == stage.client.wait_bound("web")


def test_two_constraints_that_contradict_each_other(stage: Stage) -> None:
    """One leaves only zone c, the other only the nodes outside of it."""
    team = {"team": "shop"}
    stage.make_nodes(labels={"tier": "new"})
    for name in ("a0", "a1", "b0", "b1"):
        stage.client.patch("Node", name, {"metadata": {"labels": {"tier": "old"}}})
    stage.fill("a", "b")
    stage.client.create(objects.pod("cart", labels=team, node_name="c1"))
    both = [*SPREAD, objects.spread(team, topology_key="tier")]
    stage.client.create(objects.pod("web", labels={**WEB, **team}, spread_constraints=both))

    found = stage.refused("web", NODES)

    assert_equal(found, {SKEWED: 6})
    tables = found["plugins"]["PodTopologySpread"]["tables"]
    allowed = [[row[0] for row in it["rows"] if row[it["columns"].index("allowed")]] for it in tables]
    assert [["zone-c"], ["old"]] == allowed
    assert ["c0", "c1"] == opened(found)["one pod less in tier=new"]


def test_a_claim_whose_volume_is_in_another_zone(stage: Stage) -> None:
    """The volume is in zone a, and the constraint leaves zone c."""
    stage.make_nodes()
    stage.fill("a", "b")
    volume, claim = objects.bound_claim("far")
    values = {"key": objects.ZONE_LABEL, "operator": "In", "values": ["zone-a"]}
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [values]}]}}
    volume["spec"]["claimRef"]["uid"] = stage.client.create(claim)["metadata"]["uid"]
    stage.client.create(volume)
    stage.client.patch_status("PersistentVolume", volume["metadata"]["name"], {"phase": "Bound"})
    stage.client.patch_status("PersistentVolumeClaim", "far", {"phase": "Bound"})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "far"}}]
    stage.client.create(objects.pod("web", labels=WEB, volumes=volumes, spread_constraints=SPREAD))

    found = stage.refused("web", NODES)

    assert_equal(found, {ELSEWHERE: 4, SKEWED: 2})
    assert {ELSEWHERE, SKEWED} == reasons_on(found, "b0")
    assert {ELSEWHERE} == reasons_on(found, "c0")


def test_a_claim_that_is_not_there(stage: Stage) -> None:
    """PreFilter refuses the pod for all nodes, and kube-scheduler's message has no numbers."""
    stage.make_nodes()
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]
    stage.client.create(objects.pod("web", volumes=volumes))

    found = stage.refused("web", NODES)

    assert_equal(found, {'persistentvolumeclaim "nowhere" not found': 6})
    assert {} == opened(found)


def test_a_foreign_scheduler_name(stage: Stage) -> None:
    """Nobody here decides on it, and kube-scheduler writes nothing."""
    stage.make_nodes()
    stage.client.create(objects.pod("stranger", scheduler_name="volcano"))
    stage.client.create(objects.pod("known"))
    stage.client.wait_bound("known")
    stage.explained("known", NODES)

    answer = stage.ask("stranger")

    assert (404, "Status", 'no profile for schedulerName "volcano"') == (
        answer.status_code,
        answer.json()["kind"],
        answer.json()["message"],
    )
    assert "" == stage.condition("stranger")


def test_a_namespace_that_is_being_deleted(stage: Stage) -> None:
    """Its pods are judged like others. The gate makes kube-scheduler try the pod for the first time after that."""
    stage.make_nodes(unschedulable=True)
    stage.client.create(objects.namespace(LEAVING))
    stage.client.create(objects.pod("web", namespace=LEAVING, requests={"cpu": "9"}, gates=["example.com/wait"]))
    gated = stage.explained("web", NODES, LEAVING)
    stage.client.delete("Namespace", LEAVING)
    assert "Terminating" == stage.client.get("Namespace", LEAVING)["status"]["phase"]
    stage.client.patch("Pod", "web", {"spec": {"schedulingGates": None}}, LEAVING)

    assert "Gated" == gated["verdict"]
    assert_equal(stage.refused("web", NODES, LEAVING), {CORDONED: 2, NO_CPU: 4})


def test_a_bound_pod(stage: Stage) -> None:
    """kube-scheduler's last word is where it runs. Explain says also where it could go now."""
    stage.make_nodes()
    stage.client.create(objects.pod("web", requests={"cpu": "6"}))
    node = stage.client.wait_bound("web")
    stage.client.patch("Node", node, {"spec": {"unschedulable": True}})

    def bound() -> Json | None:
        found = stage.explained("web", NODES)
        return found if found["verdict"] == "Bound" and len(found["feasible"]) == 5 else None

    found = stage.client.wait_for(bound, what="the bound pod to be explained")

    assert (node, None) == (found["nodeName"], found["scheduler"])
    assert node not in found["feasible"]
    assert found["summary"].startswith(f"bound to {node}; ")
    assert {CORDONED: 1} == first_reasons(found)
