"""Rules of the picture: what is where after each event, and which pods count."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest

from app.cache.checking import check_in_steps
from app.cache.cluster import Cluster
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PODS, SERVICES, VIRTUAL_MACHINE_INSTANCES, Kind
from app.kube.selectors import EVERYTHING, of_labels
from tests.builders import ZONE, JsonObject, controller, make_node, make_pod, make_service, taint
from tests.fakes import ManualClock

WEB = {"app": "web"}
KEY = ("default", "web-1")
UID = "uid-default-web-1"


def picture(*pods: Pod, nodes: str = "n1 n2") -> Cluster:
    cluster = Cluster()
    for name in nodes.split():
        cluster.upsert_node(make_node(name, zone=f"zone-{name}"))
    for pod in pods:
        cluster.upsert_pod(pod)
    return cluster


def counted(cluster: Cluster) -> dict[str, int]:
    """Counted pods of the namespace ``default``, by node."""
    assert [] == cluster.check()
    return dict(cluster.counts.pods_by_node("default", EVERYTHING))


def nominated(cluster: Cluster) -> dict[str, list[str]]:
    return {name: [pod.name for pod in cluster.nominated(name)] for name in cluster.nominated_nodes}


class TestPods:
    """Where pods are and which count, after any events: ``tests/property/test_picture.py``."""

    @pytest.mark.parametrize(("newest_wins", "expected"), [(True, {"n1": 1}), (False, {})])
    def test_an_earlier_form_is_taken_only_from_a_cluster_that_was_restored(
        self, *, newest_wins: bool, expected: dict[str, int]
    ) -> None:
        cluster = picture(make_pod(node="n1", resource_version="20"))

        cluster.upsert_pod(make_pod(resource_version="10"), newest_wins=newest_wins)

        assert expected == counted(cluster)

    def test_who_wants_to_know_is_told_once_that_a_pod_has_a_node(self) -> None:
        told: list[str] = []
        cluster = picture()
        cluster.on_placed(told.append)
        for pod in (make_pod(), make_pod(resource_version="2", node="n1"), make_pod(resource_version="3", node="n1")):
            cluster.upsert_pod(pod)

        assert [UID] == told


class TestReadPastTheWatch:
    """A read does not bring back what the watch has shown deleted, nor an older form of a node."""

    @pytest.mark.parametrize(("uid", "is_there"), [(UID, False), ("another", True)], ids=["that one", "one made anew"])
    def test_of_what_is_gone(self, uid: str, is_there: bool) -> None:
        cluster = picture(make_pod(node="n1"), nodes="")
        cluster.upsert_node(make_node("n1", uid=UID))
        cluster.delete_pod(KEY, UID)
        cluster.delete_node("n1")

        cluster.upsert_read_pod(make_pod(node="n1", uid=uid))
        cluster.upsert_read_node(make_node("n1", uid=uid))

        assert (is_there, is_there) == (cluster.pod(*KEY) is not None, cluster.has_node("n1"))

    def test_of_a_node_that_is_there(self) -> None:
        cluster = picture(nodes="")
        cluster.upsert_node(make_node("n1", unschedulable=True))

        cluster.upsert_read_node(make_node("n1"))

        assert cluster.nodes["n1"].node.unschedulable


class TestNominations:
    @pytest.mark.parametrize(
        ("pod", "expected"),
        [
            pytest.param(make_pod(nominated="n1"), {"n1": ["web-1"]}, id="a waiting pod"),
            pytest.param(make_pod(nominated="n9"), {"n9": ["web-1"]}, id="to a node nobody knows yet"),
            pytest.param(make_pod(nominated="n1", node="n2"), {}, id="a bound pod is nominated no more"),
            pytest.param(make_pod(nominated="n1", gated=True), {}, id="a gated pod waits for something else"),
            pytest.param(make_pod(nominated="n1", phase="Failed"), {}, id="a finished pod"),
        ],
    )
    def test_who_is_nominated(self, pod: Pod, expected: dict[str, list[str]]) -> None:
        assert expected == nominated(picture(pod))


class TestWithout:
    """A pod is not its own peer: it is left out while it is evaluated. Any pod: ``tests/property/test_overlay.py``."""

    @pytest.mark.parametrize(
        ("uid", "key", "expected"),
        [
            pytest.param(UID, KEY, {}, id="that pod"),
            pytest.param("", KEY, {}, id="by name alone"),
            pytest.param("another", KEY, {"n1": 1}, id="another pod of that name"),
            pytest.param("another", ("shop", "web-1"), {"n1": 1}, id="a pod that is not known"),
        ],
    )
    def test_which_pod_is_left_out(self, uid: str, key: tuple[str, str], expected: dict[str, int]) -> None:
        cluster = picture(make_pod(node="n1"))

        with cluster.without(uid, key):
            assert expected == dict(cluster.counts.pods_by_node("default", EVERYTHING))

    def test_it_is_back_after_a_fault_too(self) -> None:
        cluster = picture(make_pod(node="n1"))

        with pytest.raises(LookupError), cluster.without(UID, KEY):
            raise LookupError

        assert {"n1": 1} == counted(cluster)


N1 = partial(make_node, "n1", zone="zone-n1")


@pytest.mark.parametrize(
    ("change", "moves", "moves_nodes"),
    [
        pytest.param(lambda it: it.upsert_node(make_node("n3")), True, True, id="a node comes"),
        pytest.param(lambda it: it.delete_node("n1"), True, True, id="a node goes"),
        pytest.param(lambda it: it.upsert_node(make_node("n1", zone="other")), True, True, id="other labels"),
        pytest.param(lambda it: it.upsert_node(N1(taints=[taint("x")])), True, True, id="taints"),
        pytest.param(lambda it: it.upsert_node(N1(unschedulable=True)), True, True, id="cordon"),
        pytest.param(lambda it: it.upsert_node(N1(uid="anew")), True, True, id="made anew"),
        pytest.param(lambda it: it.mark_unreadable(NODES, ("", "n1"), "a label"), True, True, id="it cannot be read"),
        pytest.param(lambda it: it.mark_readable(NODES, ("", "n1")), True, True, id="it can be read again"),
        pytest.param(lambda it: it.upsert_node(N1(resource_version="2")), True, False, id="a heartbeat"),
        pytest.param(lambda it: it.delete_node("n9"), False, False, id="an unknown node goes"),
        pytest.param(lambda it: it.upsert_pod(make_pod("web-2", node="n1")), True, False, id="a pod comes"),
        pytest.param(lambda it: it.delete_pod(KEY), True, False, id="a pod goes"),
        pytest.param(lambda it: it.assume(make_pod("web-2"), "n1"), True, False, id="a pod is assumed"),
        pytest.param(lambda it: it.mark_unreadable(SERVICES, ("shop", "web"), "why"), True, False, id="another kind"),
    ],
)
def test_what_moves_the_generations(change: Callable[[Cluster], None], moves: bool, moves_nodes: bool) -> None:
    cluster = picture(make_pod(node="n1"))
    before = cluster.generation, cluster.node_generation

    change(cluster)

    assert (moves, moves_nodes) == (cluster.generation > before[0], cluster.node_generation > before[1])


def test_the_check_finds_what_is_wrong() -> None:
    """A checker that finds nothing must be able to find something."""
    cluster = picture(make_pod(node="n1"))
    cluster.counts.domains("default", EVERYTHING, ZONE, frozenset({ZONE}))
    assert [] == cluster.check()

    cluster.counts.pod(make_pod(), "n2", 1)
    cluster.nodes["n1"].pods.clear()

    assert ["pods on nodes differ from the pods", "groups differ from a recount"] == [
        sentence for sentence in cluster.check() if sentence.startswith(("groups", "pods"))
    ]
    assert any(sentence.startswith("selection") for sentence in cluster.check())
    assert any(sentence.startswith("counts by topology.kubernetes.io/zone") for sentence in cluster.check())


class TestByController:
    """Pods by the UID of their controller, for kinds that somebody asked for."""

    OWNER: ClassVar[JsonObject] = controller("VirtualMachineInstance", "db", api_version="kubevirt.io/v1")

    def test_those_that_are_there_and_those_that_come(self) -> None:
        cluster = Cluster()
        there, other = make_pod("there", owner=self.OWNER), make_pod("web", owner=controller("ReplicaSet", "web"))
        cluster.upsert_pod(there)
        cluster.upsert_pod(other)
        found = cluster.by_controller(VIRTUAL_MACHINE_INSTANCES)
        comes = make_pod("comes", owner=self.OWNER, node="n1", terminating=True)
        cluster.upsert_pod(comes)

        assert {"uid-db": {it.uid: it for it in (there, comes)}} == found
        assert found is cluster.by_controller(VIRTUAL_MACHINE_INSTANCES)

    def test_a_recount_finds_what_differs(self) -> None:
        cluster = Cluster()
        cluster.by_controller(VIRTUAL_MACHINE_INSTANCES)
        cluster.upsert_pod(make_pod(owner=self.OWNER))
        cluster._controlled["VirtualMachineInstance"].clear()

        assert ["pods of controllers differ from the pods"] == cluster.check()


class TestLeftOut:
    def test_a_node_that_cannot_be_read_is_not_missed(self) -> None:
        cluster = picture(nodes="n1")
        cluster.mark_unreadable(NODES, ("", "n2"), "odd")

        assert [False, False, True] == [cluster.misses_node(name) for name in ("n1", "n2", "n3")]

        cluster.mark_readable(NODES, ("", "n2"))
        assert cluster.misses_node("n2")

    def test_what_cannot_be_read_is_told_where_it_is_asked_for(self) -> None:
        cluster = Cluster()
        cluster.others.upsert(SERVICES, make_service("web", WEB))
        cluster.mark_unreadable(SERVICES, ("default", "web"), "odd")

        with pytest.raises(Unreadable, match=r"^Service default/web cannot be read: odd$"):
            cluster.get(SERVICES, "default", "web")
        with pytest.raises(Unreadable, match=r"^Service default/web cannot be read: odd$"):
            cluster.in_namespace(SERVICES, "default")
        assert (None, []) == (cluster.get(SERVICES, "default", "db"), list(cluster.in_namespace(SERVICES, "shop")))

    @pytest.mark.parametrize("kind", [SERVICES, NODES, PODS], ids=repr)
    def test_what_was_derived_meanwhile_is_derived_anew(self, kind: Kind[Any]) -> None:
        cluster = picture()
        seen = set()
        changes: list[Callable[[], object]] = [
            lambda: None,
            lambda: cluster.mark_unreadable(kind, KEY, "odd"),
            lambda: cluster.mark_readable(kind, KEY),
        ]
        for change in changes:
            change()
            seen.add((cluster.generation, cluster.version(kind, "default"), cluster.node_set if kind == NODES else 0))

        assert (3, False) == (len(seen), bool(cluster.unreadable))
        assert len({generation for generation, _, _ in seen}) == 3


class TestCheckInSteps:
    """That changes between the steps are no differences: ``tests/property/test_picture.py``."""

    def asked(self) -> Cluster:
        cluster = picture(make_pod(node="n1", labels=WEB), make_pod("web-9", node="n2"))
        for labels in (EVERYTHING, of_labels(WEB)):
            cluster.counts.domains("default", labels, ZONE, frozenset({ZONE})).minimum()
        return cluster

    def test_a_difference_that_arises_meanwhile_is_told(self) -> None:
        cluster = self.asked()
        told = []
        for step, words in enumerate(cluster.checking()):
            told.append(words)
            if step == 0:
                cluster.counts.pod(make_pod(labels=WEB), "n2", 1)

        assert "groups differ from a recount" in told

    def test_one_that_is_given_up_costs_nothing_further(self) -> None:
        cluster = self.asked()
        steps = cluster.checking()
        next(steps)

        steps.close()

        assert [] == cluster._recounts

    async def test_others_run_meanwhile(self) -> None:
        """After each step, where each takes longer than a turn."""
        cluster, now, turns = self.asked(), ManualClock(), 0

        def clock() -> float:
            now.now += 1
            return now.now

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        assert [] == await check_in_steps(cluster, clock=clock)
        task.cancel()

        assert turns >= len(list(cluster.checking())) - 1
