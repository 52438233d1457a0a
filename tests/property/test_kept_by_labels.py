"""What is kept of plugins that look at labels, images and features is what a fresh world says, whatever happened."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from app.framework.cycle_state import CycleState
from app.framework.status import SUCCESS
from app.kube.core_v1 import Pod
from tests.builders import (
    JsonObject,
    container,
    expression,
    node_object,
    preferred_affinity,
    required_affinity,
    term,
    weighted,
)
from tests.harness import World, only

PLUGINS: Final = ("TaintToleration", "NodeAffinity", "ImageLocality", "NodeDeclaredFeatures")
NODES: Final = tuple(f"n{index}" for index in range(6))
IMAGES: Final = ("web:1", "db:1", "log:1")
RESTART: Final = "RestartAllContainersOnContainerExits"
STEPS: Final = 120


def node(random: Random) -> JsonObject:
    images = [{"names": [it], "sizeBytes": random.choice((300, 700)) << 20} for it in IMAGES if random.random() < 0.4]
    declared = {"declaredFeatures": [RESTART]} if random.random() < 0.5 else {}
    labels = {"disk": random.choice(("ssd", "hdd")), "gen": str(random.randint(1, 4))}
    return node_object(random.choice(NODES), labels=labels, status={"images": images, **declared})


def pods(world: World) -> list[Pod]:
    """Pods that need a label, names, a feature, nothing; names that contradict each other."""
    ssd, name = expression("disk", "In", "ssd"), "metadata.name"
    wishes = preferred_affinity(weighted(3, term(expression("gen", "Gt", "2"))), weighted(2, term(ssd)))
    names = [term(fields=[expression(name, "In", it)]) for it in NODES[:2]]
    restarting = container(image="db:1", restartPolicyRules=[{"action": "RestartAllContainers"}])
    return [
        world.pod("plain", affinity=wishes, containers=[container(image=it) for it in IMAGES]),
        world.pod("picky", affinity=required_affinity(term(ssd)), containers=[container(image="web:1")]),
        world.pod("named", affinity=required_affinity(*names), node_selector={"disk": "ssd"}),
        world.pod("torn", affinity=required_affinity(term(fields=[expression(name, "In", it) for it in NODES[:2]]))),
        world.pod("restarting", containers=[restarting], node_selector={"gen": "2"}),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_kept_answers_are_fresh_ones(seed: int) -> None:
    random = Random(seed)
    world = World(profile=only(*PLUGINS))
    shapes = pods(world)
    for _ in range(STEPS):
        if random.random() < 0.2:
            world.cluster.delete_node(random.choice(NODES))
        else:
            world.add(node(random))
        pod = random.choice(shapes)
        assert answers(anew(world), pod) == answers(world, pod)
    differences = [*world.framework.checking(), *world.cluster.check()]
    assert [] == [*filter(None, differences)]


def anew(world: World) -> World:
    """The same nodes in the same order, and nothing kept."""
    return World(*(it.node for it in world.cluster.nodes.values()), profile=only(*PLUGINS))


def answers(world: World, pod: Pod) -> object:
    """Who passes and why the others do not, what each node was told by itself, and the scores of those that pass."""
    found = world.framework.search.find_nodes_that_fit(pod, world.candidates())
    fresh = world.framework.filters.feasible(CycleState(), pod, world.candidates())
    assert dict(found.rejected()) == dict(fresh.rejected)
    scored = world.framework.scoring.score(CycleState(), pod, world.candidates(found.passed)) if found.passed else None
    return (
        [*found.passed],
        {name: fresh.rejected.get(name, SUCCESS) for name in world.cluster.nodes},
        scored and (scored.by_plugin, scored.totals),
    )
