"""Rules of parts: which of them are decoded only where a plugin names them."""

from app.framework.parts import Part, extras_of
from app.kube.core_v1 import Pod, PodSpec
from app.kube.extras import Extra

ON_DEMAND = {Part[it.name] for it in Extra}


def test_some_parts_are_decoded_on_demand_and_no_others() -> None:
    assert frozenset(Extra) == extras_of(Part)
    assert {Part.RESOURCES, Part.PORTS, Part.IMAGES, Part.POD_AFFINITY, Part.DISRUPTION} < ON_DEMAND
    assert {it.name for it in Extra} == {it.name for it in Part if extras_of([it])}
    assert frozenset() == extras_of(set(Part) - ON_DEMAND)


def test_a_part_is_named_by_where_it_is_found() -> None:
    for part in Part:
        below, _, name = part.value.rpartition(".")
        assert below in ("", "spec")
        assert hasattr(PodSpec if below else Pod, name)
