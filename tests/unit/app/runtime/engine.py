"""An engine of plugins that answer what a test tells them to, on three nodes."""

from collections.abc import Mapping, Sequence

from app.cache.cluster import Cluster
from app.config.profile import POINTS
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates, NodeInfo
from app.framework.spec import Reads
from app.framework.status import Code, Status, unresolvable
from app.kube.core_v1 import Pod
from app.runtime.filters import FilterOutcome
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.runtime.registry import POINT_METHODS
from app.runtime.slots import PluginSlot, declares
from app.runtime.waiting import PodsAtPermit
from app.telemetry.metrics import Metrics
from tests.builders import make_node, make_pod
from tests.fakes import (
    FakePlugin,
    FixedNominations,
)

POD = make_pod("pending", priority=5)
NEVER = unresolvable("never")
WAIT = Status(Code.WAIT, ("not now",))
PENDING = Status(Code.PENDING, ("later",))


def framework(
    *plugins: FakePlugin,
    weights: Mapping[str, int] | None = None,
    nominated: Mapping[str, Sequence[Pod]] | None = None,
    certain: Sequence[str] = (),
    metrics: Metrics | None = None,
) -> Framework:
    """The plugins in the order given, each at every point it has; those ``certain`` read nodes alone."""
    slots = {
        point: [
            PluginSlot.of(
                it.name,
                it,
                weight=(weights or {}).get(it.name, 1),
                reads=Reads.NODE if it.name in certain else Reads.CLUSTER,
            )
            for it in plugins
            if point in POINT_METHODS and declares(type(it), POINT_METHODS[point])
        ]
        for point in POINTS
    }
    nominations = FixedNominations(nominated)
    picture = Cluster()
    for name in ("n1", "n2", "n3"):
        picture.upsert_node(make_node(name))
    return Framework(
        "default-scheduler",
        slots,
        served=["default-scheduler"],
        nominations=nominations,
        snapshot=picture,
        waiting=PodsAtPermit(),
        guard=Guard(metrics or Metrics()),
    )


def nodes(*names: str) -> Candidates:
    return Candidates.of({name: NodeInfo(make_node(name)) for name in names or ("n1", "n2")})


def info(name: str = "n1", *pods: Pod) -> NodeInfo:
    return NodeInfo(make_node(name)).with_pods(pods)


def feasible(engine: Framework, *names: str) -> FilterOutcome:
    return engine.filters.feasible(CycleState(), POD, nodes(*names))
