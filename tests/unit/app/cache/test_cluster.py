"""Rules of the picture: what is where after each event, and which pods count."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from app.cache.checking import check_in_turns
from app.cache.cluster import Cluster
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PODS, SERVICES, VIRTUAL_MACHINE_INSTANCES, Kind
from app.kube.selectors import EVERYTHING, of_labels
from tests.builders import ZONE, JsonObject, bound_pods, controller, make_node, make_pod, make_service, taint
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


def on_nodes(cluster: Cluster) -> dict[str, list[str]]:
    """The pods that plugins see, by node."""
    return {name: [pod.name for pod in info.pods.values()] for name, info in cluster.nodes.items()}


def counted(cluster: Cluster) -> dict[str, int]:
    """Counted pods of the namespace ``default``, by node."""
    assert [] == cluster.check()
    return dict(cluster.counts.pods_by_node("default", EVERYTHING))


def nominated(cluster: Cluster) -> dict[str, list[str]]:
    return {name: [pod.name for pod in cluster.nominated(name)] for name in cluster.nominated_nodes}


class TestPods:
    @pytest.mark.parametrize(
        ("pod", "seen", "counts"),
        [
            pytest.param(make_pod(node="n1"), {"n1": ["web-1"], "n2": []}, {"n1": 1}, id="a bound pod"),
            pytest.param(make_pod(), {"n1": [], "n2": []}, {}, id="a waiting pod is on no node"),
            pytest.param(
                make_pod(node="n1", terminating=True),
                {"n1": ["web-1"], "n2": []},
                {},
                id="a terminating pod takes its room and does not count",
            ),
            pytest.param(make_pod(node="n1", phase="Failed"), {"n1": [], "n2": []}, {}, id="a failed pod is gone"),
            pytest.param(make_pod(node="n1", phase="Succeeded"), {"n1": [], "n2": []}, {}, id="a done pod is gone"),
            pytest.param(
                make_pod(node="n9"), {"n1": [], "n2": []}, {"n9": 1}, id="a pod on an unknown node is out of sight"
            ),
        ],
    )
    def test_where_a_pod_is(self, pod: Pod, seen: dict[str, list[str]], counts: dict[str, int]) -> None:
        cluster = picture(pod)

        assert seen == on_nodes(cluster)
        assert counts == counted(cluster)

    @pytest.mark.parametrize(
        ("then", "expected"),
        [
            pytest.param(make_pod(node="n1", labels=WEB), {"n1": 1}, id="other labels"),
            pytest.param(make_pod(node="n2"), {"n2": 1}, id="another node"),
            pytest.param(make_pod(), {}, id="no node any more"),
            pytest.param(make_pod(node="n1", terminating=True), {}, id="terminating"),
            pytest.param(make_pod(node="n1", phase="Failed"), {}, id="finished"),
            pytest.param(make_pod(node="n2", uid="another"), {"n2": 1}, id="another pod of the same name"),
            pytest.param(make_pod(uid="another"), {}, id="another pod of the same name, waiting"),
            pytest.param(make_pod(node="n1", uid="another", phase="Failed"), {}, id="another pod, finished"),
        ],
    )
    def test_a_bound_pod_changes(self, then: Pod, expected: dict[str, int]) -> None:
        cluster = picture(make_pod(node="n1"), then)

        assert expected == counted(cluster)
        assert {} == {
            name: pods for name, pods in on_nodes(cluster).items() if pods and name not in (then.node_name, "")
        }

    def test_the_pod_is_held_in_its_newest_form(self) -> None:
        newest = make_pod(node="n1", labels=WEB)
        cluster = picture(make_pod(node="n1"), newest)

        assert (newest, [newest]) == (cluster.pod(*KEY), list(cluster.pods()))
        assert [newest] == list(cluster.nodes["n1"].pods.values())

    @pytest.mark.parametrize(("newest_wins", "expected"), [(True, {"n1": 1}), (False, {})])
    def test_an_earlier_form_is_taken_only_from_a_cluster_that_was_restored(
        self, *, newest_wins: bool, expected: dict[str, int]
    ) -> None:
        cluster = picture(make_pod(node="n1", resource_version="20"))

        cluster.upsert_pod(make_pod(resource_version="10"), newest_wins=newest_wins)

        assert expected == counted(cluster)

    def test_a_finished_pod_is_not_held(self) -> None:
        cluster = picture(make_pod(node="n1"), make_pod(node="n1", phase="Succeeded"))

        assert (None, []) == (cluster.pod(*KEY), list(cluster.pods()))

    @pytest.mark.parametrize(
        ("key", "uid", "expected"),
        [
            pytest.param(KEY, "", {}, id="by name"),
            pytest.param(KEY, UID, {}, id="by name, still that pod"),
            pytest.param(KEY, "another", {"n1": 1}, id="by name, another pod by now"),
            pytest.param(("shop", "web-1"), "", {"n1": 1}, id="a pod nobody knows"),
        ],
    )
    def test_a_pod_is_deleted(self, key: tuple[str, str], uid: str, expected: dict[str, int]) -> None:
        cluster = picture(make_pod(node="n1"))

        cluster.delete_pod(key, uid)

        assert expected == counted(cluster)

    @pytest.mark.parametrize(
        ("uid", "expected"),
        [
            pytest.param(UID, {}, id="the pod that is gone"),
            pytest.param("another", {"n1": 1}, id="a new one under its name"),
        ],
    )
    def test_a_read_past_the_watch_does_not_bring_back_what_is_gone(self, uid: str, expected: dict[str, int]) -> None:
        cluster = picture(make_pod(node="n1"))
        cluster.delete_pod(KEY, UID)

        cluster.upsert_read_pod(make_pod(node="n1", uid=uid))

        assert expected == counted(cluster)

    def test_who_wants_to_know_is_told_once_that_a_pod_has_a_node(self) -> None:
        told: list[str] = []
        cluster = picture()
        cluster.on_placed(told.append)
        for pod in (make_pod(), make_pod(resource_version="2", node="n1"), make_pod(resource_version="3", node="n1")):
            cluster.upsert_pod(pod)

        assert [UID] == told

    def test_pods_of_two_namespaces_do_not_meet(self) -> None:
        cluster = picture(make_pod(node="n1"), make_pod(node="n1", namespace="shop"))

        assert {"n1": 1} == counted(cluster)
        cluster.delete_pod(("shop", "web-1"))
        assert {"n1": ["web-1"], "n2": []} == on_nodes(cluster)


class TestNodes:
    @pytest.mark.parametrize(
        ("uid", "is_there"),
        [pytest.param("uid-1", False, id="the node that is gone"), pytest.param("uid-2", True, id="one made anew")],
    )
    def test_a_read_past_the_watch_brings_back_no_node_that_is_gone(self, uid: str, is_there: bool) -> None:
        cluster = picture(nodes="")
        cluster.upsert_node(make_node("n1", uid="uid-1"))
        cluster.delete_node("n1")

        cluster.upsert_read_node(make_node("n1", uid=uid))

        assert cluster.has_node("n1") == is_there

    def test_a_read_past_the_watch_takes_no_newer_form_away(self) -> None:
        cluster = picture(nodes="")
        cluster.upsert_node(make_node("n1", unschedulable=True))

        cluster.upsert_read_node(make_node("n1"))

        assert cluster.nodes["n1"].node.unschedulable

    def test_pods_may_come_before_their_node(self) -> None:
        cluster = picture(make_pod(node="n1"), nodes="")
        assert {} == on_nodes(cluster)

        cluster.upsert_node(make_node("n1"))

        assert {"n1": ["web-1"]} == on_nodes(cluster)
        assert {"n1": 1} == counted(cluster)

    def test_pods_outlive_their_node(self) -> None:
        """A node object may be deleted and made again while its kubelet and its pods go on."""
        cluster = picture(make_pod(node="n1"))

        cluster.delete_node("n1")
        assert {"n2": []} == on_nodes(cluster)
        cluster.upsert_pod(make_pod("web-2", node="n1"))
        cluster.upsert_node(make_node("n1", zone="other"))

        assert {"n2": [], "n1": ["web-1", "web-2"]} == on_nodes(cluster)
        assert {"n1": 2} == counted(cluster)

    def test_pods_go_while_their_node_is_away(self) -> None:
        cluster = picture(make_pod(node="n1"), make_pod("web-2", node="n1"))
        cluster.delete_node("n1")

        cluster.delete_pod(KEY)
        cluster.upsert_pod(make_pod("web-2", node="n2"))
        cluster.upsert_node(make_node("n1"))

        assert {"n2": ["web-2"], "n1": []} == on_nodes(cluster)

    def test_a_node_nobody_knows_is_deleted_in_vain(self) -> None:
        cluster = picture(make_pod(node="n9"))

        cluster.delete_node("n9")

        assert {"n9": 1} == counted(cluster)

    def test_a_node_is_held_in_its_newest_form(self) -> None:
        cluster = picture(make_pod(node="n1"))
        info = cluster.nodes["n1"]

        cluster.upsert_node(make_node("n1", zone="moved"))

        assert make_node("n1", zone="moved") == info.node
        assert info is cluster.nodes["n1"]
        assert {"n1": "moved", "n2": "zone-n2"} == cluster.counts.values(ZONE)


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

    @pytest.mark.parametrize(
        "then",
        [
            pytest.param(lambda it: it.upsert_pod(make_pod()), id="the nomination is taken back"),
            pytest.param(lambda it: it.upsert_pod(make_pod(node="n2", nominated="n1")), id="the pod is bound"),
            pytest.param(lambda it: it.upsert_pod(make_pod(nominated="n1", gated=True)), id="the pod is gated"),
            pytest.param(lambda it: it.delete_pod(KEY), id="the pod is deleted"),
            pytest.param(lambda it: it.upsert_pod(make_pod(uid="another")), id="another pod has its name"),
            pytest.param(lambda it: it.assume(make_pod(nominated="n1"), "n2"), id="the pod is assumed somewhere"),
        ],
    )
    def test_a_nomination_ends(self, then: Callable[[Cluster], None]) -> None:
        cluster = picture(make_pod(nominated="n1"))

        then(cluster)

        assert {} == nominated(cluster)

    def test_a_nomination_moves(self) -> None:
        assert {"n2": ["web-1"]} == nominated(picture(make_pod(nominated="n1"), make_pod(nominated="n2")))

    def test_a_pod_whose_binding_failed_is_nominated_as_before(self) -> None:
        cluster = picture(make_pod(nominated="n1"))

        cluster.assume(make_pod(nominated="n1"), "n2")
        cluster.forget(UID)

        assert {"n1": ["web-1"]} == nominated(cluster)


class TestAssumed:
    def test_an_assumed_pod_counts_and_is_not_bound(self) -> None:
        cluster = picture(make_pod(labels=WEB))

        cluster.assume(make_pod(labels=WEB), "n1")

        placed = make_pod(labels=WEB, node="n1", phase="Pending")
        assert {"n1": ["web-1"], "n2": []} == on_nodes(cluster)
        assert {"n1": 1} == counted(cluster)
        assert ((placed,), []) == (cluster.assumed.in_flight(), bound_pods(cluster))
        assert placed == cluster.pod(*KEY)

    def test_an_assumed_pod_need_not_be_known(self) -> None:
        """The binder may have read it past the watch."""
        cluster = picture()

        cluster.assume(make_pod(), "n1")

        assert {"n1": 1} == counted(cluster)

    def test_a_pod_made_anew_takes_the_place_of_the_one_before(self) -> None:
        """Read past the watch, while the binding of its predecessor of the same name is still in flight."""
        cluster = picture(make_pod())
        cluster.assume(make_pod(), "n1")

        cluster.assume(make_pod(uid="another"), "n2")
        cluster.forget(UID)

        assert ({"n2": 1}, 1, "another") == (
            counted(cluster),
            len(cluster.assumed),
            next(it.uid for it in cluster.pods()),
        )

    def test_accepting_changes_what_is_certain_and_nothing_else(self) -> None:
        cluster = picture(make_pod())
        cluster.assume(make_pod(), "n1")

        cluster.accept(UID)

        assert ((), [], {"n1": 1}) == (cluster.assumed.in_flight(), bound_pods(cluster), counted(cluster))

    @pytest.mark.parametrize(
        ("events", "expected", "left"),
        [
            pytest.param([make_pod(node="n1")], {"n1": 1}, 0, id="shown bound where it was assumed"),
            pytest.param([make_pod(node="n2")], {"n2": 1}, 0, id="shown bound elsewhere: the watch is right"),
            pytest.param([make_pod(labels=WEB)], {"n1": 1}, 1, id="shown waiting with other labels: still assumed"),
            pytest.param([make_pod(terminating=True)], {}, 1, id="shown terminating: still assumed, not counted"),
            pytest.param([make_pod(phase="Failed")], {}, 0, id="shown failed"),
            pytest.param([make_pod(uid="another")], {}, 0, id="another pod has its name"),
            pytest.param([make_pod(node="n1"), make_pod()], {}, 0, id="shown bound, then waiting: the watch is right"),
        ],
    )
    @pytest.mark.parametrize("accepted", [False, True], ids=["in flight", "accepted"])
    def test_the_watch_has_the_last_word(
        self, accepted: bool, events: list[Pod], expected: dict[str, int], left: int
    ) -> None:
        cluster = picture(make_pod())
        cluster.assume(make_pod(), "n1")
        if accepted:
            cluster.accept(UID)

        for pod in events:
            cluster.upsert_pod(pod)

        assert (expected, left) == (counted(cluster), len(cluster.assumed))

    def test_a_deleted_pod_is_not_assumed(self) -> None:
        cluster = picture(make_pod())
        cluster.assume(make_pod(), "n1")

        cluster.delete_pod(KEY, UID)

        assert ({}, 0, None) == (counted(cluster), len(cluster.assumed), cluster.pod(*KEY))

    def test_a_failed_binding_leaves_the_pod_waiting_in_its_newest_form(self) -> None:
        cluster = picture(make_pod())
        cluster.assume(make_pod(), "n1")
        cluster.upsert_pod(make_pod(labels=WEB))

        cluster.forget(UID)

        assert ({}, 0, make_pod(labels=WEB)) == (counted(cluster), len(cluster.assumed), cluster.pod(*KEY))

    @pytest.mark.parametrize(
        "event",
        [
            pytest.param(lambda it: it.upsert_pod(make_pod(node="n1")), id="once the watch has shown it bound"),
            pytest.param(lambda it: it.forget(UID), id="twice"),
            pytest.param(lambda it: it.delete_pod(KEY), id="once it is gone"),
        ],
    )
    def test_forgetting_has_no_effect(self, event: Callable[[Cluster], None]) -> None:
        cluster = picture(make_pod())
        cluster.assume(make_pod(), "n1")
        event(cluster)
        before = (counted(cluster), cluster.pod(*KEY), on_nodes(cluster))

        cluster.forget(UID)

        assert before == (counted(cluster), cluster.pod(*KEY), on_nodes(cluster))

    def test_a_pod_may_be_assumed_on_a_node_nobody_knows(self) -> None:
        cluster = picture(make_pod())

        cluster.assume(make_pod(), "n9")
        assert {"n9": 1} == counted(cluster)
        cluster.forget(UID)
        assert {} == counted(cluster)


class TestWithout:
    """A pod is not its own peer: it is left out while it is judged."""

    @pytest.mark.parametrize(
        ("pod", "uid", "expected"),
        [
            pytest.param(make_pod(node="n1"), UID, {}, id="a bound pod"),
            pytest.param(make_pod(node="n1"), "", {}, id="by name alone"),
            pytest.param(make_pod(node="n1"), "another", {"n1": 1}, id="another pod of that name"),
            pytest.param(make_pod(node="n1", terminating=True), UID, {}, id="a terminating pod"),
            pytest.param(make_pod(node="n9"), UID, {}, id="a pod on an unknown node"),
            pytest.param(make_pod(), UID, {}, id="a waiting pod"),
        ],
    )
    def test_within_it_is_gone_and_afterwards_back(self, pod: Pod, uid: str, expected: dict[str, int]) -> None:
        cluster = picture(pod)
        before = (counted(cluster), on_nodes(cluster), cluster.generation)

        with cluster.without(uid, KEY):
            assert expected == dict(cluster.counts.pods_by_node("default", EVERYTHING))

        assert before == (counted(cluster), on_nodes(cluster), cluster.generation)

    def test_an_assumed_pod_is_left_out_and_stays_assumed(self) -> None:
        cluster = picture(make_pod())
        cluster.assume(make_pod(), "n1")

        with cluster.without(UID, KEY):
            assert {"n1": [], "n2": []} == on_nodes(cluster)

        assert ({"n1": 1}, 1) == (counted(cluster), len(cluster.assumed))

    def test_its_nomination_is_left_out(self) -> None:
        cluster = picture(make_pod(nominated="n1"))

        with cluster.without(UID, KEY):
            assert {} == nominated(cluster)

        assert {"n1": ["web-1"]} == nominated(cluster)

    def test_it_is_back_after_a_fault_too(self) -> None:
        cluster = picture(make_pod(node="n1"))

        with pytest.raises(LookupError), cluster.without(UID, KEY):
            raise LookupError

        assert {"n1": 1} == counted(cluster)

    def test_a_pod_nobody_knows_is_left_out_in_vain(self) -> None:
        cluster = picture(make_pod(node="n1"))

        with cluster.without("another", ("shop", "web-1")):
            assert {"n1": 1} == counted(cluster)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda it: it.upsert_node(make_node("n3")), id="a node comes"),
        pytest.param(lambda it: it.upsert_node(make_node("n1")), id="a node changes"),
        pytest.param(lambda it: it.delete_node("n1"), id="a node goes"),
        pytest.param(lambda it: it.upsert_pod(make_pod("web-2", node="n1")), id="a pod comes"),
        pytest.param(lambda it: it.delete_pod(KEY), id="a pod goes"),
        pytest.param(lambda it: it.assume(make_pod("web-2"), "n1"), id="a pod is assumed"),
    ],
)
def test_the_generation_moves_with_every_change(change: Callable[[Cluster], None]) -> None:
    cluster = picture(make_pod(node="n1"))
    before = cluster.generation

    change(cluster)

    assert cluster.generation > before


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        pytest.param(lambda it: it.upsert_node(make_node("n3")), True, id="a node comes"),
        pytest.param(lambda it: it.delete_node("n1"), True, id="a node goes"),
        pytest.param(lambda it: it.upsert_node(make_node("n1", zone="other")), True, id="other labels"),
        pytest.param(
            lambda it: it.upsert_node(make_node("n1", zone="zone-n1", taints=[taint("x")])), True, id="taints"
        ),
        pytest.param(lambda it: it.upsert_node(make_node("n1", zone="zone-n1", unschedulable=True)), True, id="cordon"),
        pytest.param(lambda it: it.upsert_node(make_node("n1", zone="zone-n1", uid="anew")), True, id="made anew"),
        pytest.param(lambda it: it.leave_out(NODES, ("", "n1"), "a label"), True, id="it cannot be read"),
        pytest.param(lambda it: it.take_back(NODES, ("", "n1")), True, id="it can be read again"),
        pytest.param(
            lambda it: it.upsert_node(make_node("n1", zone="zone-n1", resource_version="2")), False, id="a heartbeat"
        ),
        pytest.param(lambda it: it.delete_node("n9"), False, id="a node nobody knows goes"),
        pytest.param(lambda it: it.upsert_pod(make_pod("web-2", node="n1")), False, id="a pod comes"),
        pytest.param(lambda it: it.leave_out(SERVICES, ("shop", "web"), "why"), False, id="a service cannot be read"),
    ],
)
def test_the_generation_of_the_nodes_moves_with_what_is_read_of_them(
    change: Callable[[Cluster], None], moves: bool
) -> None:
    cluster = picture(make_pod(node="n1"))
    before = cluster.node_generation

    change(cluster)

    assert moves == (cluster.node_generation > before)


def test_a_heartbeat_moves_the_generation_of_all_and_is_kept() -> None:
    cluster = picture()
    before = cluster.generation

    cluster.upsert_node(make_node("n1", zone="zone-n1", resource_version="2"))

    assert ("2", True) == (cluster.nodes["n1"].node.resource_version, cluster.generation > before)


def test_other_objects_are_found_by_kind() -> None:
    cluster = Cluster()
    service = make_service("web", WEB)
    cluster.others.upsert(SERVICES, service)

    assert (service, [service], 1) == (
        cluster.get(SERVICES, "default", "web"),
        list(cluster.in_namespace(SERVICES, "default")),
        cluster.version(SERVICES, "default"),
    )


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

    def test_an_assumed_one_is_on_its_node_and_a_lifted_one_nowhere(self) -> None:
        cluster, pod = Cluster(), make_pod(owner=self.OWNER)
        found = cluster.by_controller(VIRTUAL_MACHINE_INSTANCES)
        cluster.assume(pod, "n1")

        assert ["n1"] == [it.node_name for it in found["uid-db"].values()]
        with cluster.without(pod.uid, pod.key):
            assert {} == found
        cluster.forget(pod.uid)
        assert [""] == [it.node_name for it in found["uid-db"].values()]

    @pytest.mark.parametrize(
        "last",
        [
            pytest.param(make_pod(owner=controller("Job", "db"), resource_version="2"), id="another controller"),
            pytest.param(make_pod(resource_version="2"), id="orphaned"),
            pytest.param(make_pod(owner=OWNER, phase="Succeeded", resource_version="2"), id="finished"),
            pytest.param(make_pod(uid="new", resource_version="2"), id="replaced"),
        ],
    )
    def test_one_that_goes_leaves_nothing(self, last: Pod) -> None:
        cluster = Cluster()
        found = cluster.by_controller(VIRTUAL_MACHINE_INSTANCES)
        cluster.upsert_pod(make_pod(owner=self.OWNER))

        cluster.upsert_pod(last)

        assert ({}, []) == (found, cluster.check())

    def test_a_recount_finds_what_differs(self) -> None:
        cluster = Cluster()
        cluster.by_controller(VIRTUAL_MACHINE_INSTANCES)
        cluster.upsert_pod(make_pod(owner=self.OWNER))
        cluster._controlled["VirtualMachineInstance"].clear()

        assert ["pods of controllers differ from the pods"] == cluster.check()


def test_a_node_that_cannot_be_read_is_not_missed() -> None:
    cluster = Cluster()
    cluster.upsert_node(make_node("n1"))
    cluster.leave_out(NODES, ("", "n2"), "odd")

    assert [False, False, True] == [cluster.misses_node(name) for name in ("n1", "n2", "n3")]

    cluster.take_back(NODES, ("", "n2"))
    assert cluster.misses_node("n2")


class TestLeftOut:
    def test_what_cannot_be_read_is_told_where_it_is_asked_for(self) -> None:
        cluster = Cluster()
        cluster.others.upsert(SERVICES, make_service("web", WEB))
        cluster.leave_out(SERVICES, ("default", "web"), "odd")

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
            lambda: cluster.leave_out(kind, KEY, "odd"),
            lambda: cluster.take_back(kind, KEY),
        ]
        for change in changes:
            change()
            seen.add((cluster.generation, cluster.version(kind, "default"), cluster.node_set if kind == NODES else 0))

        assert (3, False) == (len(seen), bool(cluster.left_out))
        assert len({generation for generation, _, _ in seen}) == 3


class TestCheckInSteps:
    """The picture changes between the steps: what is told to differ differs, and nothing else is told."""

    CHANGES: ClassVar[list[Callable[[Cluster], None]]] = [
        lambda it: it.upsert_pod(make_pod("web-2", node="n1", labels=WEB)),
        lambda it: it.upsert_pod(make_pod(node="n2", labels=WEB)),
        lambda it: it.delete_pod(KEY),
        lambda it: it.assume(make_pod("web-3", labels=WEB), "n2"),
        lambda it: it.upsert_pod(make_pod(uid="another", node="n1", labels=WEB)),
        lambda it: it.upsert_node(make_node("n3", zone="zone-n1")),
        lambda it: it.delete_node("n1"),
    ]

    def test_changes_are_no_differences(self) -> None:
        """Each at each step."""
        total = len(list(self.asked().checking()))
        for change in self.CHANGES:
            for moment in range(total):
                cluster = self.asked()
                told = []
                for step, words in enumerate(cluster.checking()):
                    told.append(words)
                    if step == moment:
                        change(cluster)
                assert "" == "".join(told)
                assert [] == cluster.check()

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
        assert [] == await check_in_turns(cluster, clock=clock)
        task.cancel()

        assert turns >= len(list(cluster.checking())) - 1
