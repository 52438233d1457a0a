"""Rules of DynamicResources."""

import asyncio
from typing import Any, Final

import pytest
from pydantic import ValidationError

from app.cache.cluster import Cluster
from app.framework.background import run_to_end
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.status import Code
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra
from app.kube.resource_v1 import Device
from app.runtime.guard import PluginError
from plugins.in_tree.dynamic_resources import cached_allocator
from plugins.in_tree.dynamic_resources.args import DynamicResourcesArgs, seconds_of
from plugins.in_tree.dynamic_resources.cached_allocator import MAX_STEPS_PER_EVALUATION
from plugins.in_tree.dynamic_resources.cel_scope import device_variables
from plugins.in_tree.dynamic_resources.errors import REASON_LONG_CLAIMS
from plugins.in_tree.dynamic_resources.inventory import Inventory
from plugins.in_tree.dynamic_resources.plugin import DynamicResources
from tests.builders import JsonObject, container, encoded, node_object, pod_object
from tests.harness import Answer, World, only

DEVICES: Final = "DynamicResources"
API: Final = "resource.k8s.io/v1"
CORE: Final = core_v1({Extra.CLAIMS, Extra.RESOURCES})


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", DEVICES, (reason,))


NOT_ALL: Final = refused("cannot allocate all claims")


def object_of(kind: str, name: str, spec: JsonObject, **more: Any) -> JsonObject:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"} | more.pop("metadata", {})
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec, **more}


def slice_of(node: str, *devices: str) -> JsonObject:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.test", "nodeName": node, "pool": pool, "devices": [{"name": it} for it in devices]}
    return object_of("ResourceSlice", f"s-{node}", spec)


def claim(name: str = "mine", node: str = "", reserved: str = "", expression: str = "", **more: Any) -> JsonObject:
    exactly: JsonObject = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    status: JsonObject = {}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        result = {"request": "r", "driver": "gpu.test", "pool": node, "device": "d0"}
        status["allocation"] = {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    if reserved:
        status["reservedFor"] = [{"resource": "pods", "name": "p", "uid": reserved}]
    return object_of(
        "ResourceClaim", name, {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}, status=status, **more
    )


def world(*objects: JsonObject, nodes: int = 2) -> World:
    found = World(profile=only(DEVICES), cluster=Cluster(CORE))
    for it in range(nodes):
        found.add(CORE.decode_node(encoded(node_object(f"n{it}"))))
    return found.add(object_of("DeviceClass", "gpu", {}), *objects)


def pod(*claims: str, **spec: Any) -> Pod:
    named = [{"name": it, "resourceClaimName": it} for it in claims]
    return CORE.decode_pod(encoded(pod_object("p", uid="p1", more={"resourceClaims": named, **spec})))


def plugin_of(found: World) -> DynamicResources:
    plugin = found.framework.plugins[DEVICES]
    assert isinstance(plugin, DynamicResources)
    return plugin


def test_a_device_of_another_claim_is_taken_until_that_gives_it_back() -> None:
    found = world(claim(), claim("other", node="n0"), slice_of("n0", "d0"))
    assert {"n0": NOT_ALL, "n1": NOT_ALL} == found.filter(pod("mine"))

    found.add(claim("other"))
    assert {"n0": "Success", "n1": NOT_ALL} == found.filter(pod("mine"))


def test_a_pod_whose_claims_are_not_there_is_not_queued() -> None:
    """PreFilter says the same: topic ``dra`` of ``tests/conformance``."""
    assert ('could not find ResourceClaim "default/mine"',) == plugin_of(world()).pre_enqueue(pod("mine")).reasons
    unknown = CORE.decode_pod(encoded(pod_object("p", more={"resourceClaims": [{"name": "c"}]})))
    reason = 'pod "default/p", spec.resourceClaim "c": none of the supported fields are set'
    assert {refused(reason)} == set(world().filter(unknown).values())


def test_what_cannot_be_judged_is_refused() -> None:
    unknown = refused("node(s) can't be judged: a selector of devices uses what is not known here")
    long = refused(REASON_LONG_CLAIMS)
    found = world(claim(expression="device.driver.reverse() == 'x'"), slice_of("n0", "d0"))

    assert {"n0": unknown, "n1": NOT_ALL} == found.filter(pod("mine"))
    assert {"n0": long, "n1": long} == found.filter(pod(*["mine"] * 33))
    assert (REASON_LONG_CLAIMS,) == plugin_of(found).pre_enqueue(pod(*["mine"] * 33)).reasons


def test_many_nodes_are_searched_in_turns() -> None:
    count = MAX_STEPS_PER_EVALUATION // 60 + 80
    found = world(claim(), nodes=count)
    plugin, state, waiting = plugin_of(found), CycleState(), pod("mine")
    plugin.pre_filter(state, waiting)

    def judged() -> set[Code]:
        return {plugin.filter(state, waiting, it).code for it in found.candidates()}

    with pytest.raises(Unprepared) as unprepared:
        judged()
    assert len(list(unprepared.value.steps)) > 1
    plugin.pre_filter(state, waiting)
    assert {Code.UNSCHEDULABLE_AND_UNRESOLVABLE} == judged()


def test_a_signature_moves_with_what_it_rests_on() -> None:
    found = world(claim(), slice_of("n0", "d0"))
    plugin = plugin_of(found)
    before = plugin.signature(pod("mine"))
    assert before == plugin.signature(pod("mine"))
    many = pod(*["mine"] * 33)
    assert ((), many.spec.oversized) == (plugin.signature(pod()), plugin.signature(many))
    assert many.spec.oversized, "a pod whose claims are not read is not one that wants no devices"

    found.add(slice_of("n0", "d0", "d1"))
    assert before != plugin.signature(pod("mine"))


@pytest.mark.parametrize(
    ("mine", "ready"),
    [
        pytest.param(claim(), False, id="not allocated"),
        pytest.param(claim(node="n0"), False, id="not reserved"),
        pytest.param(claim(node="n0", reserved="another"), False, id="reserved for another"),
        pytest.param(claim(node="n0", reserved="p1"), True, id="allocated and reserved"),
    ],
)
def test_a_pod_is_bound_only_with_its_claims(mine: JsonObject, ready: bool) -> None:
    plugin, waiting = plugin_of(world(mine, slice_of("n0", "d0"))), pod("mine")

    status, _ = plugin.permit(CycleState(), waiting, "n0")
    bound = asyncio.run(plugin.pre_bind(CycleState(), waiting, "n0"))

    assert (Code.SUCCESS if ready else Code.WAIT) == status.code
    assert ready is bound.is_success
    assert ready or bound.reasons == ("the pod's resource claims are not allocated and reserved for it",)


@pytest.mark.parametrize(
    ("filtered", "reason"), [(True, "still not schedulable"), (False, "no new claims to deallocate")]
)
def test_post_filter_frees_nothing(filtered: bool, reason: str) -> None:
    """Without a state, an earlier plugin's PreFilter has refused the pod."""
    plugin, state = plugin_of(world(claim())), CycleState()
    if filtered:
        plugin.pre_filter(state, pod("mine"))

    result, status = run_to_end(plugin.post_filter(state, pod("mine"), {}))

    assert (None, (reason,)) == (result, status.reasons)


def test_arguments() -> None:
    found = DynamicResourcesArgs.model_validate({"filterTimeout": "0s", "bindingTimeout": "1m30s"})

    assert (0, 90) == (seconds_of(found.filter_timeout), seconds_of(found.binding_timeout))


@pytest.mark.parametrize(
    "wrong", [{"filterTimeout": "-1s"}, {"bindingTimeout": "500ms"}, {"bindingTimeout": 10}, {"x": 1}]
)
def test_arguments_that_are_wrong(wrong: JsonObject) -> None:
    with pytest.raises(ValidationError):
        DynamicResourcesArgs.model_validate(wrong)


def half(node: str, generation: int = 1) -> JsonObject:
    """The slice of one node, of a pool that has one on each of two nodes."""
    pool = {"name": "both", "generation": generation, "resourceSliceCount": 2}
    spec = {"driver": "gpu.test", "nodeName": node, "pool": pool, "devices": [{"name": f"d-{node}"}]}
    return object_of("ResourceSlice", f"s-{node}", spec, metadata={"resourceVersion": str(generation)})


def test_what_is_remembered_of_a_node_rests_on_the_slices_of_others_too() -> None:
    found = world(claim(), half("n0"))
    said = [found.filter(pod("mine"))["n0"]]
    found.add(half("n1"))
    said.append(found.filter(pod("mine"))["n0"])
    found.add(half("n1", generation=2))
    said.append(found.filter(pod("mine"))["n0"])

    assert [NOT_ALL, "Success", NOT_ALL] == said


@pytest.mark.parametrize("ends_in_an_error", [False, True])
def test_thousands_of_nodes_are_decided_in_steps(*, ends_in_an_error: bool) -> None:
    """Resources that a class stands behind, and devices by an expression that ends in an error."""
    nodes = 300
    found = world(
        *(slice_of(f"n{it}", "d0") for it in range(nodes)),
        object_of("DeviceClass", "gpu", {"extendedResourceName": "example.com/gpu"}),
        claim(expression='device.attributes["gpu.test"].nope == 1'),
        nodes=nodes,
    )
    named = [{"name": "mine", "resourceClaimName": "mine"}]
    asking = {"resourceClaims": named} if ends_in_an_error else {}
    requests = {} if ends_in_an_error else {"example.com/gpu": "1"}
    wanted = CORE.decode_pod(encoded(pod_object("p", uid="p1", containers=[container(requests=requests)], more=asking)))

    def decided() -> str:
        try:
            return str(len(found.framework.search.find_nodes_that_fit(wanted, found.candidates()).passed))
        except PluginError as fault:
            return fault.status.message

    said, steps = [], []
    for _ in range(4):
        try:
            said.append(decided())
        except Unprepared as missing:
            steps.append(len(list(missing.steps)))
    assert 2 == len(steps), "the slices are taken in, then the nodes are searched"
    assert (str(nodes) if not ends_in_an_error else "no such key: nope") in said[0]


def test_nothing_is_read_for_a_pod_that_wants_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    found = world(claim(node="n0"), slice_of("n0", "d0"))
    monkeypatch.setattr(Inventory, "refresh", lambda _: pytest.fail("the inventory is brought up to date"))

    assert {"n0": "Success", "n1": "Success"} == found.filter(pod())
    status, _ = plugin_of(found).permit(CycleState(), pod(), "n0")
    assert status.is_success


def everywhere(*devices: str) -> JsonObject:
    """Devices that can be reached from all nodes."""
    pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.test", "allNodes": True, "pool": pool, "devices": [{"name": it} for it in devices]}
    return object_of("ResourceSlice", "net", spec)


def test_a_device_is_selected_once_for_all_nodes_until_slices_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def variables(driver: str, device: Device) -> dict[str, Any]:
        asked.append(device.name)
        return device_variables(driver, device)

    monkeypatch.setattr(cached_allocator, "device_variables", variables)
    found = world(claim(expression="device.driver == 'nobody'"), everywhere("d0", "d1"), nodes=5)

    for slices in (everywhere("d0", "d1"), everywhere("d0", "d2")):
        found.add(slices)
        assert {NOT_ALL} == set(found.filter(pod("mine")).values())

    assert ["d0", "d1", "d0", "d2"] == asked


def asking_nodes_for_different_things(resources: int) -> tuple[World, Pod]:
    """Each node has device plugins for some other of the resources, of which the pod asks for all."""
    names = [f"example.com/r{it}" for it in range(resources)]
    found = World(profile=only(DEVICES), cluster=Cluster(CORE))
    for number, name in enumerate(names):
        found.add(object_of("DeviceClass", f"c{number}", {"extendedResourceName": name}))
    for number in range(2**resources):
        there = {name: "1" for place, name in enumerate(names) if number >> place & 1}
        found.add(CORE.decode_node(encoded(node_object(f"n{number}") | {"status": {"allocatable": there}})))
        found.add(slice_of(f"n{number}", *(f"d{it}" for it in range(resources))))
    containers = [container(requests=dict.fromkeys(names, "1"))]
    return found, CORE.decode_pod(encoded(pod_object("p", uid="p1", containers=containers)))


@pytest.mark.parametrize("least_room", [False, True])
def test_one_pod_may_ask_every_node_for_something_else(monkeypatch: pytest.MonkeyPatch, *, least_room: bool) -> None:
    """What it asked for is there when it asks again, however little else is remembered."""
    monkeypatch.setattr(cached_allocator, "MAX_STEPS_PER_EVALUATION", 500)
    if least_room:
        monkeypatch.setattr(cached_allocator, "MAX_OUTCOME_BYTES", 0)
        monkeypatch.setattr(cached_allocator, "MAX_SPEC_BYTES", 0)
    found, wanted = asking_nodes_for_different_things(7)
    with pytest.raises(Unprepared) as unprepared:
        found.framework.search.find_nodes_that_fit(wanted, found.candidates())
    assert len(list(unprepared.value.steps)) > 1

    assert 128 == len(found.framework.search.find_nodes_that_fit(wanted, found.candidates()).passed)


def test_what_was_asked_for_before_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    found = world(*(claim(f"c{it}", expression=f"{it} == 0") for it in range(40)), slice_of("n0", "d0"))
    kept = plugin_of(found)._allocator

    def remembered() -> int:
        for it in range(40):
            found.filter(pod(f"c{it}"))
        assert kept._outcome_bytes == sum(it.weight for it in kept._by_specs.values())
        return len(kept._by_specs)

    assert 40 == remembered()
    monkeypatch.setattr(cached_allocator, "MAX_OUTCOME_BYTES", kept._outcome_bytes // 4)
    assert 8 <= remembered() <= 10
