"""A pod that waits for a home which takes pods: people are told why that home does not take it, where it is known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from app.framework.interface import NodeVerdict
from app.kube.core_v1 import Pod
from app.kube.names import shown
from plugins.sticky_node import refused_pods
from plugins.sticky_node.refused_pods import AGAIN_SECONDS, FIRST_SECONDS, in_words
from tests.api.virtual import now, virtual_time
from tests.builders import JsonObject, make_pod
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import HOME, MACHINE, bound
from tests.unit.plugins.sticky_node.test_watched_pods import at
from tests.unit.plugins.sticky_node.watched import BEGINS, Watched, after, launcher

DB: Final = "VirtualMachine default/db"
POD: Final = "Pod default/launcher"
FULL: Final = NodeVerdict(("Insufficient cpu",))
TICKS: Final = 1.0
"""Until something that is due is done."""


def refused(name: str = "launcher", machine: str = "db") -> Pod:
    """A pod of which the scheduler has said that no node was found."""
    since = {"type": "PodScheduled", "status": "False", "lastTransitionTime": after(1)}
    return launcher(name, machine, resource_version="2", status={"conditions": [since]})


class Asked(Watched):
    """``verdict``: what in-tree filters say. ``asked``: when, and about whom where."""

    def __init__(self, args: JsonObject | None = None, verdict: NodeVerdict = FULL) -> None:
        super().__init__(args)
        self.verdict = verdict
        self.asked: list[tuple[float, str, str]] = []
        self.meanwhile: Callable[[], object] = bool
        self.handle = replace(self.handle, why=self._why)
        self.restart()

    async def _why(self, pod: Pod, node_name: str) -> NodeVerdict:
        self.asked.append((now() - BEGINS, pod.name, node_name))
        self.meanwhile()
        return self.verdict

    def waits(self, name: str = "launcher") -> None:
        assert ["n1"] == self.asks(launcher(name))
        self.cluster.upsert_pod(refused(name))


def told(until: str = "", reasons: str = "Insufficient cpu") -> list[Told]:
    said = f"waits for n1: {reasons}{until}"
    return [
        Told(DB, POD, "Normal", "HomeRefuses", "Watching", f"default/launcher {said}"),
        Told(POD, "Node n1", "Normal", "HomeRefuses", "Watching", f"the pod {said}"),
    ]


@pytest.mark.parametrize(
    ("policy", "until"),
    [("hard", ""), ("grace", f"; from {after(901)} on it may start elsewhere")],
)
def test_on_the_pod_and_on_its_owner(policy: str, until: str) -> None:
    @virtual_time
    async def story() -> None:
        machines = Asked({"policy": policy})
        machines.machine(home="n1")
        with capture_logs() as lines:
            async with machines.leading():
                await at(1)
                machines.waits()
                await at(120)

        assert told(until) == machines.events.told
        ((when, who, node), *_) = machines.asked
        assert (("launcher", "n1"), True) == ((who, node), when <= 1 + FIRST_SECONDS + TICKS)
        assert [
            {
                "event": "home refuses",
                "log_level": "info",
                "machine": DB,
                "node": "n1",
                "pod": "default/launcher",
                "reasons": "Insufficient cpu",
            }
        ] == lines

    story()


@virtual_time
async def test_also_of_a_pod_that_filter_was_never_asked_about() -> None:
    """Where in-tree filters refuse it everywhere, no extender is asked."""
    machines = Asked({"policy": "hard"})
    machines.machine(home="n1")
    async with machines.leading():
        await at(1)
        machines.cluster.upsert_pod(refused())
        await at(60)

    assert told() == machines.events.told


@virtual_time
async def test_where_nothing_is_known_nothing_is_said_and_it_is_asked_again_ever_more_rarely() -> None:
    machines = Asked({"policy": "hard"}, NodeVerdict((), ("InterPodAffinity",)))
    machines.machine(home="n1")
    async with machines.leading():
        await at(1)
        machines.waits()
        await at(100)
        assert [] == machines.events.told
        pauses = [later - earlier for (earlier, *_), (later, *_) in pairwise(machines.asked)]
        assert [True] * len(pauses) == [
            AGAIN_SECONDS * 2**number <= it <= AGAIN_SECONDS * 2**number + TICKS for number, it in enumerate(pauses)
        ]
        machines.verdict = FULL
        await at(400)

    assert told() == machines.events.told


@virtual_time
async def test_other_reasons_are_told_anew() -> None:
    machines = Asked({"policy": "hard"})
    machines.machine(home="n1")
    async with machines.leading():
        await at(1)
        machines.waits()
        await at(10)
        machines.verdict = NodeVerdict(("Insufficient memory",))
        await at(60)

    assert told() + told(reasons="Insufficient memory") == machines.events.told


@virtual_time
async def test_the_end_of_a_grace_says_it_too() -> None:
    machines = Asked({"gracePeriod": 100})
    machines.machine(home="n1")
    async with machines.leading():
        await at(1)
        machines.waits()
        await at(200)

    over = [it for it in machines.events.told if it.reason == "GraceOver"]
    why = "the home n1 did not take default/launcher (Insufficient cpu)"
    note = f"{why} since {after(1)}: the grace is over, and default/launcher may start elsewhere"
    assert {(DB, note), (POD, note)} == {(it.regarding, it.note) for it in over}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda it: it.cluster.upsert_pod(bound(refused(), "n1", {})), id="the pod was bound"),
        pytest.param(lambda it: it.cluster.delete_pod(("default", "launcher")), id="the pod is gone"),
        pytest.param(lambda it: it.change(MACHINE, {HOME: "n2"}), id="the home was moved"),
        pytest.param(lambda it: it.change(MACHINE, {}), id="the home was released"),
        pytest.param(lambda it: it.change(MACHINE, {HOME: "n1", "policy": "soft"}), id="it may go elsewhere"),
        pytest.param(lambda it: it.cordon("n1"), id="the home takes no pods"),
    ],
)
def test_what_has_changed_while_it_was_asked_is_not_told(change: Callable[[Asked], object]) -> None:
    @virtual_time
    async def story() -> None:
        machines = Asked({"policy": "hard"})
        machines.machine(home="n1")
        machines.meanwhile = lambda: change(machines)
        async with machines.leading():
            await at(1)
            machines.waits()
            await at(10)

        assert 1 == len(machines.asked)
        assert "HomeRefuses" not in machines.events.reasons

    story()


@virtual_time
async def test_a_pod_that_is_not_held_is_not_asked_about() -> None:
    """Nor one that starts within moments, since its home was merely not shown."""
    machines = Asked()
    machines.machine("soft", home="n1", policy="soft")
    machines.machine(home="n1")
    async with machines.leading():
        await at(1)
        machines.asks(refused("soft", "soft"))
        machines.waits()
        await at(1 + FIRST_SECONDS / 2)
        machines.cluster.upsert_pod(bound(refused(), "n1", {}))
        await at(60)

    assert [] == machines.asked


@virtual_time
async def test_no_more_pods_are_kept_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_pods, "MOST", 2)
    machines = Asked({"policy": "hard"})
    machines.machine(home="n1")
    async with machines.leading():
        await at(1)
        for number in range(4):
            machines.waits(f"pod-{number}")
        await at(10)
        assert ["pod-0", "pod-1"] == [who for _, who, _ in machines.asked]
        machines.cluster.delete_pod(("default", "pod-0"))
        machines.cordon("n3")
        await at(60)

    assert {"pod-0", "pod-1", "pod-2"} <= {who for _, who, _ in machines.asked}


@virtual_time
async def test_pods_of_one_namespace_silence_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_pods, "MOST_OF_NAMESPACE", 1)
    machines = Asked({"policy": "hard"})
    pods = machines.plugin._watch._pods.refused
    for name, namespace in (("a", "one"), ("b", "one"), ("c", "two")):
        pods.note(make_pod(name, uid=name, namespace=namespace))
    assert ["a", "c"] == [*pods._pods]

    pods.forget("a")
    pods.note(make_pod("b", uid="b", namespace="one"))
    assert ["c", "b"] == [*pods._pods]


def test_reasons_are_few_and_short() -> None:
    many = tuple(f"Insufficient {number}" for number in range(6))

    assert "Insufficient 0, Insufficient 1, Insufficient 2, Insufficient 3, and 2 more" == in_words(many)
    assert in_words(("x" * 10_000,)) == shown("x" * 10_000)
    assert "'\\x1b[2J'" == in_words(("\x1b[2J",))
