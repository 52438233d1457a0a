"""Rules of the bind: no pod is bound before its claims are, and Homeport does what is simple and safe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.framework.cycle_state import CycleState
from app.framework.following import AT_ONCE
from app.framework.objects import ObjectGone, WriteConflict
from app.framework.status import SUCCESS, Status
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from plugins.in_tree.volume_binding.args import VolumeBindingArgs
from plugins.in_tree.volume_binding.plugin import VolumeBinding
from tests.builders import ZONE, JsonObject, claim_object, class_object, mounting, node_object, volume_object
from tests.fakes import NoWriter
from tests.harness import World, only

NAME: Final = "VolumeBinding"
LATER: Final = class_object("later")
STATIC: Final = class_object("static", provisioner="kubernetes.io/no-provisioner")
BOUND: Final = (
    claim_object(class_name="later", volume="pv-1", node="a", resourceVersion="9"),
    volume_object(class_name="later", claim="data", zone="a", resourceVersion="9"),
)
TAKEN_BACK: Final = "provisioning failed: the node was taken off a PersistentVolumeClaim of the pod"
LATE: Final = "the volumes of the pod were not bound in time"
UNBOUND: Final = (
    "a PersistentVolumeClaim of the pod waits to be bound to a PersistentVolume that is there: "
    "Homeport does not bind volumes, and nobody else did"
)


class ClaimWriter(NoWriter):
    """Writes what it is told into the picture as the API server would, or raises."""

    def __init__(self, cluster: Cluster, raises: Exception | None) -> None:
        self._cluster = cluster
        self._raises = raises
        self.written: list[Mapping[str, str | None]] = []

    async def annotate(self, kind: Any, found: Any, annotations: Mapping[str, str | None]) -> None:
        self.written.append(annotations)
        if self._raises is not None:
            raise self._raises
        node = annotations["volume.kubernetes.io/selected-node"]
        self._cluster.others.upsert(kind, replace(found, selected_node=node))


class Bind:
    """A pod with the claim ``data`` on the node ``a``, of two; ``then``: what happens after so many seconds."""

    def __init__(self, *objects: JsonObject, raises: Exception | None = None, timeout: int = 600) -> None:
        nodes = (node_object("a", labels={ZONE: "a"}), node_object("b", labels={ZONE: "b"}))
        self.world = World(*nodes, LATER, STATIC, *objects, profile=only(NAME))
        self.writer = ClaimWriter(self.world.cluster, raises)
        self.then: dict[float, Callable[[], object]] = {}
        handle = self.world.handle
        handle = replace(handle, writer=self.writer, timing=replace(handle.timing, sleep=self._sleep))
        self.plugin = VolumeBinding(VolumeBindingArgs(bindTimeoutSeconds=timeout), handle)
        self.pod = self.world.pod(more=mounting("data"))

    async def _sleep(self, seconds: float) -> None:
        clock = self.world.clock
        clock.now += seconds
        for due in [it for it in self.then if it <= clock.now]:
            self.then.pop(due)()

    def later(self, seconds: float, *objects: JsonObject) -> Bind:
        self.then[seconds] = lambda: self.world.add(*objects)
        return self

    async def run(self, node: str = "a", deadline: float = math.inf) -> Status:
        state = CycleState()
        state.deadline = deadline
        return await self.plugin.pre_bind(state, self.pod, node)

    @property
    def seconds(self) -> float:
        return self.world.clock.now


async def test_a_pod_whose_claims_are_bound_goes_on() -> None:
    """Also to a node that is not there: nothing is looked at."""
    bind = Bind(*BOUND)
    plain = bind.world.pod("plain")

    assert [SUCCESS] * 2 == [await bind.plugin.pre_bind(CycleState(), it, "gone") for it in (bind.pod, plain)]


async def test_a_volume_is_made_and_the_bind_waits_for_it() -> None:
    bind = Bind(claim_object(class_name="later")).later(30, *BOUND)

    assert (await bind.run()).is_success
    assert ([{"volume.kubernetes.io/selected-node": "a"}], 30) == (bind.writer.written, bind.seconds)


async def test_where_volumes_are_still_to_be_taken_in_the_bind_goes_on_after_that() -> None:
    """What is looked up after a start, or once thousands have changed, others need not wait for."""
    many = (volume_object(f"pv-{it}", class_name="static", size="1Ki") for it in range(2 * AT_ONCE))
    bind = Bind(claim_object(class_name="later"), *many).later(30, *BOUND)

    assert (await bind.run()).is_success
    assert ([{"volume.kubernetes.io/selected-node": "a"}], 30) == (bind.writer.written, bind.seconds)


async def test_a_claim_that_is_named_twice_is_given_its_node_once() -> None:
    bind = Bind(claim_object(class_name="later")).later(30, *BOUND)
    bind.pod = bind.world.pod(more=mounting("data", "data"))

    assert (await bind.run()).is_success
    assert 1 == len(bind.writer.written)


async def test_what_somebody_else_does_is_waited_for() -> None:
    """kube-scheduler's own VolumeBinding, of which the watch is behind."""
    annotated = Bind(claim_object(class_name="later", node="a")).later(2, *BOUND)
    reserved = Bind(claim_object(class_name="static"), volume_object(class_name="static", claim="data")).later(
        60, *BOUND
    )
    chosen = Bind(claim_object(class_name="static"), volume_object(class_name="static")).later(2, *BOUND)

    assert [True] * 3 == [(await it.run()).is_success for it in (annotated, reserved, chosen)]
    assert [] == [*annotated.writer.written, *reserved.writer.written, *chosen.writer.written]


async def test_a_volume_that_nobody_binds_is_not_waited_for_long() -> None:
    bind = Bind(claim_object(class_name="static"), volume_object(class_name="static"))
    status = await bind.run()

    assert ((UNBOUND,), 5.0, []) == (status.reasons, bind.seconds, bind.writer.written)


@pytest.mark.parametrize(
    ("most", "deadline", "seconds"),
    [
        pytest.param(600, 30.0, 29.5, id="the bind has less time"),
        pytest.param(10, 30.0, 10.0, id="the plugin gives it less"),
        pytest.param(0, math.inf, 0.0, id="none at all"),
    ],
)
async def test_it_waits_no_longer_than_there_is_time(most: int, deadline: float, seconds: float) -> None:
    bind = Bind(claim_object(class_name="later"), timeout=most)
    status = await bind.run(deadline=deadline)

    assert ((LATE,), seconds) == (status.reasons, bind.seconds)


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        pytest.param([claim_object(class_name="later", resourceVersion="9")], TAKEN_BACK, id="it could not be made"),
        pytest.param(
            [claim_object(class_name="later", node="b", resourceVersion="9")],
            "node(s) didn't find available persistent volumes to bind",
            id="it is made for another node",
        ),
        pytest.param(
            [BOUND[0], volume_object(class_name="later", claim="data", zone="b")],
            "node(s) didn't match PersistentVolume's node affinity",
            id="it is in another zone",
        ),
        pytest.param(
            [claim_object(class_name="later", resourceVersion="9", deletionTimestamp="2026-01-01T00:00:00Z")],
            'persistentvolumeclaim "data" is being deleted',
            id="the claim is being deleted",
        ),
    ],
)
async def test_it_ends_where_there_will_be_no_volume(then: list[JsonObject], reason: str) -> None:
    bind = Bind(claim_object(class_name="later")).later(3, *then)
    status = await bind.run()

    assert (True, (reason,), 3.0) == (status.is_rejected, status.reasons, bind.seconds)


async def test_it_ends_where_the_claim_or_the_node_is_gone() -> None:
    claim, node = Bind(claim_object(class_name="later")), Bind(claim_object(class_name="later"))
    claim.then[1] = lambda: claim.world.cluster.others.delete(PERSISTENT_VOLUME_CLAIMS, ("default", "data"))
    node.then[1] = lambda: node.world.cluster.delete_node("a")

    assert [('persistentvolumeclaim "data" not found',), ("the node a is gone",)] == [
        (await it.run()).reasons for it in (claim, node)
    ]


async def test_a_claim_that_changed_meanwhile_is_looked_at_anew() -> None:
    bind = Bind(claim_object(class_name="later"), raises=WriteConflict("changed")).later(1, *BOUND)

    assert (await bind.run()).is_success


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        pytest.param(
            OSError("forbidden"),
            "PersistentVolumeClaim default/data cannot be annotated with a node: forbidden",
            id="it may not be written",
        ),
        pytest.param(ObjectGone("it"), "it is gone", id="it is gone"),
    ],
)
async def test_a_claim_that_cannot_be_written_ends_the_bind(raised: Exception, reason: str) -> None:
    status = await Bind(claim_object(class_name="later"), raises=raised).run()

    assert ((reason,), False) == (status.reasons, status.is_success)


async def test_a_pod_that_was_sound_and_is_no_more_is_not_bound() -> None:
    status = await Bind(claim_object(class_name="later", phase="Lost", more={"volumeName": "v"})).run()

    assert ('persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',) == status.reasons
