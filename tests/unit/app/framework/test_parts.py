"""Rules of parts: which of them are decoded only where a plugin names them."""

from app.framework.parts import Part, extras_of, paths_of_pod
from app.kube.core_v1 import Node, Pod, PodSpec
from app.kube.extras import NODE_ONLY, Extra

ON_DEMAND = {Part[it.name] for it in Extra}


def test_some_parts_are_decoded_on_demand_and_no_others() -> None:
    assert frozenset(Extra) == extras_of(Part)
    assert {Part.RESOURCES, Part.PORTS, Part.IMAGES, Part.POD_AFFINITY, Part.DISRUPTION} < ON_DEMAND
    assert {it.name for it in Extra} == {it.name for it in Part if extras_of([it])}
    assert frozenset() == extras_of(set(Part) - ON_DEMAND)


def test_a_part_is_named_by_where_it_is_found() -> None:
    for part in Part:
        below, _, name = part.value.rpartition(".")
        assert hasattr({"": Pod, "spec": PodSpec, "node": Node}[below], name)


def test_what_is_of_nodes_alone_is_no_part_of_a_pod() -> None:
    assert ("labels", "spec.volumes") == paths_of_pod([Part.VOLUMES, Part.NODE_STATE, Part.LABELS])
    assert len(Part) - len(NODE_ONLY) == len(paths_of_pod(Part))
