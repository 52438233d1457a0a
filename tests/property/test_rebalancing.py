"""Rebalancing of random small clusters: no shorter plan exists, and each eviction has the result in the plan."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from app.kube.core_v1 import Pod
from app.whatif.placing import Placer, recreated
from app.whatif.scratch import ScratchCluster
from app.whatif.spread import limits_of, skew_of
from tests.builders import JsonObject, constraint, controller
from tests.unit.app.whatif.rebalances import HOST, ZONE, nodes, planned, pod
from tests.unit.app.whatif.scratches import scratch_of

_DEEPEST = 3
"""Longest sequence of evictions that is searched without pruning. More would take minutes."""


@st.composite
def clusters(draw: st.DrawFn) -> list[JsonObject]:
    """Two to four nodes in up to four zones, and up to 12 pods of two workloads with the same constraints."""
    places = nodes(*draw(st.lists(st.sampled_from("abcd"), min_size=2, max_size=4)), cpu=draw(st.sampled_from("48")))
    for found in places:
        found["metadata"]["labels"][HOST] = found["metadata"]["name"]
    keys = draw(st.lists(st.sampled_from([ZONE, HOST]), min_size=1, max_size=2, unique=True))
    spread = [constraint(key, skew=draw(st.integers(1, 3)), app="web") for key in keys]
    favourite = draw(st.integers(1, len(places)))
    pods = []
    for number in range(draw(st.integers(2, 12))):
        at = draw(st.sampled_from([favourite, favourite, *range(1, len(places) + 1)]))
        never = {"homeport.dev/never-evict": "true"} if draw(st.integers(0, 7)) == 0 else {}
        workload = controller("ReplicaSet", draw(st.sampled_from(["web", "web", "other"])))
        pods.append(pod(f"web-{number}", f"n{at}", "1", spread=spread, annotations=never, owner=workload))
    return [*places, *pods]


def is_balanced(scratch: ScratchCluster, pods: Sequence[Pod]) -> bool:
    return all(skew_of(it) <= it.max_skew for it in limits_of(scratch, pods[0]))


def is_possible(scratch: ScratchCluster, pods: Sequence[Pod], moves: int) -> bool:
    """Return whether this many evictions can balance the cluster, if each new pod is placed."""
    if is_balanced(scratch, pods):
        return True
    for victim in pods if moves else ():
        if victim.annotations or scratch.cluster.pod(*victim.key) is None:
            continue
        scratch.cluster.delete_pod(victim.key, victim.uid)
        new = recreated(victim)
        found = not Placer(scratch).place(new).waits and is_possible(scratch, pods, moves - 1)
        scratch.cluster.delete_pod(new.key, new.uid)
        scratch.cluster.upsert_pod(victim)
        if found:
            return True
    return False


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_no_shorter_plan_exists(objects: list[JsonObject]) -> None:
    plan = planned(scratch_of(*objects), most=12)

    scratch = scratch_of(*objects)
    pods = sorted(scratch.cluster.pods(), key=lambda it: it.name)
    if plan["above"]:
        shorter = _DEEPEST if plan["left"] else min(_DEEPEST, len(plan["evictions"]) - 1)
        assert not is_possible(scratch, pods, shorter)
    for eviction in plan["evictions"]:
        victim = scratch.cluster.pod(eviction["namespace"], eviction["pod"])
        assert victim is not None
        assert (victim.uid, victim.node_name) == (eviction["uid"], eviction["nodeName"])
        scratch.cluster.delete_pod(victim.key, victim.uid)
        assert eviction["goesTo"] == Placer(scratch).place(recreated(victim)).node
    assert is_balanced(scratch, pods) == (not plan["left"])
