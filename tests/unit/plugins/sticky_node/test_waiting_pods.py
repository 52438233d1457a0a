"""A pod that waits for a home is woken within 2 s of what lets it go, and for nothing else.

A pod that waits for a home which takes pods: people are told why that home does not take it, where it is known.

Homes and pods are watched side by side: what holds up the one does not hold up the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from app.framework.handle import NodeVerdict
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, AnnotatedObject, Kind
from app.kube.names import shown
from plugins.sticky_node import waiting_pods
from plugins.sticky_node.events import reasons_text
from plugins.sticky_node.waiting_pods import ASK_AGAIN_SECONDS, AT_ONCE, FIRST_ASK_SECONDS
from tests.api.virtual import now, virtual_time
from tests.builders import JsonObject, claim_object, encoded, make_pod, mounting, volume_object
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import HOME, MACHINE, bound, launcher, make_node
from tests.unit.plugins.sticky_node.watched import BEGINS, Watched, after, at, at_home, away

DB = "VirtualMachine default/db"
POD = "Pod default/launcher"
GRACE = 900.0

LATEST = 2.0
"""Seconds until the scheduler is asked to try a pod again."""


def waiting(policy: str = "grace") -> Watched:
    """A machine whose home n1 is cordoned."""
    return away({"policy": policy, "gracePeriod": GRACE})


def asks(machines: Watched) -> None:
    assert [] == machines.asks(launcher())


def asks_without_owner(machines: Watched) -> None:
    machines.gone(MACHINE)
    machines.uncordon("n1")
    asks(machines)


def asks_at_home(machines: Watched) -> None:
    machines.uncordon("n1")
    assert ["n1"] == machines.asks(launcher())


def cordon_for_a_moment(machines: Watched) -> None:
    machines.cordon("n1")
    asks(machines)
    machines.uncordon("n1")


class TestWoken:
    @virtual_time
    async def test_once_the_grace_is_over_that_the_pod_itself_counts(self) -> None:
        """The home is usable and full: what the scheduler says of the pod comes after the first refusal."""
        machines = at_home({"gracePeriod": GRACE})
        async with machines.leading():
            await at(30)
            assert ["n1"] == machines.asks(launcher())
            await at(32)
            since = {"type": "PodScheduled", "status": "False", "lastTransitionTime": after(30)}
            machines.cluster.upsert_pod(launcher(resource_version="2", status={"conditions": [since]}))
            await at(3000)

        ((when, _),) = machines.woken
        assert 30 + GRACE <= when <= 30 + GRACE + LATEST

    @virtual_time
    @pytest.mark.parametrize(
        ("before", "edit"),
        [
            pytest.param(asks, lambda it: it.change(MACHINE, {HOME: "n2"}), id="moved"),
            pytest.param(asks, lambda it: it.change(MACHINE, {}), id="released"),
            pytest.param(asks, lambda it: it.change(MACHINE, {HOME: "n1", "policy": "soft"}), id="made soft"),
            pytest.param(asks, lambda it: it.leaves("n1"), id="its node leaves"),
            pytest.param(asks, lambda it: it.uncordon("n1"), id="its node takes pods again"),
            pytest.param(asks, asks_at_home, id="somebody asked for an explanation first: that is asking filter"),
            pytest.param(asks_at_home, cordon_for_a_moment, id="what refused it came and went between two looks"),
            pytest.param(asks_without_owner, lambda it: it.machine(home="n1"), id="its owner comes"),
            pytest.param(
                lambda it: it.cluster.upsert_pod(launcher()),
                lambda it: it.uncordon("n1"),
                id="in-tree filters refused it on all nodes, so filter was never asked",
            ),
        ],
    )
    async def test_once_the_answer_would_be_another(
        self, before: Callable[[Watched], object], edit: Callable[[Watched], object]
    ) -> None:
        machines = waiting()
        async with machines.leading():
            await at(1)
            before(machines)
            await at(50)
            edit(machines)
            await at(700)

        ((when, _),) = machines.woken
        assert 50 <= when <= 50 + LATEST
        assert machines.asks(launcher())

    @virtual_time
    async def test_once_the_only_try_of_a_soft_home_is_over(self) -> None:
        """The home was not among the nodes asked about; nobody says anything to its nomination."""
        machines = Watched({"policy": "soft"})
        machines.machine(home="n4")
        machines.cluster.upsert_node(make_node("n4"))
        async with machines.leading():
            await at(10)
            assert [] == machines.asks_about(launcher(), "n1", "n2")
            await at(100)

        ((when, _),) = machines.woken
        assert 10 < when <= 10 + LATEST
        assert ["n1", "n2"] == machines.asks_about(launcher(), "n1", "n2")

    @virtual_time
    async def test_once_the_try_is_over_however_long_it_has_waited_before(self) -> None:
        """Its grace ends long after its first refusal, and only then is the home a soft one."""
        machines = at_home({"gracePeriod": 400})
        since = {"type": "PodScheduled", "status": "False", "lastTransitionTime": after(0)}
        pod = launcher(status={"conditions": [since]})
        async with machines.leading():
            await at(2)
            assert [] == machines.asks_about(pod, "n2", "n3")
            await at(410)
            assert 1 == len(machines.woken)
            assert [] == machines.asks_about(pod, "n2", "n3")
            await at(700)

        _, (when, _) = machines.woken
        assert 410 < when <= 410 + LATEST
        assert ["n2", "n3"] == machines.asks_about(pod, "n2", "n3")

    @virtual_time
    async def test_also_of_more_than_are_remembered_those_that_came_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(waiting_pods, "MOST_KNOWN", 5)
        machines = waiting()
        async with machines.leading():
            await at(1)
            for number in range(8):
                machines.asks(launcher(f"pod-{number}"))
            await at(20)
            machines.uncordon("n1")
            await at(25)

        assert [f"pod-{number}" for number in range(3, 8)] == [who for _, who in machines.woken]

    @virtual_time
    async def test_each_time_that_a_node_may_do(self) -> None:
        machines = waiting("hard")
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            for number in range(3):
                await at(100 + 100 * number)
                machines.uncordon("n1")
                await at(150 + 100 * number)
                machines.cordon("n1")
            await at(700)

        assert [100, 200, 300] == [int(when) // 100 * 100 for when, _ in machines.woken]


class TestLeftAlone:
    @virtual_time
    async def test_where_nothing_of_its_home_moves(self) -> None:
        machines = waiting("hard")
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            for number in range(20):
                await at(10 * (number + 1))
                machines.cluster.upsert_node(make_node("n2", labels={"number": str(number)}))
                machines.machine("other", home="n3")
            await at(7200)

        assert [] == machines.woken

    @virtual_time
    async def test_it_waits_for_a_home_that_is_back_and_full_from_when_it_came_back(self) -> None:
        machines = away({"gracePeriod": GRACE})
        told = {"conditions": [{"type": "PodScheduled", "status": "False", "lastTransitionTime": after(1)}]}
        pod = launcher(resource_version="2", status=told, nominated="n1")
        async with machines.leading():
            await at(1)
            assert [] == machines.asks(pod)
            await at(800)
            machines.uncordon("n1")
            await at(950)
            assert [] == machines.asks_about(pod, "n2", "n3")
            await at(800 + GRACE + LATEST)
            assert ["n2", "n3"] == machines.asks_about(pod, "n2", "n3")

    @virtual_time
    async def test_it_waits_for_a_full_home_from_when_its_gates_went(self) -> None:
        """What PodScheduled says has stood there since it was made."""
        told = {"conditions": [{"type": "PodScheduled", "status": "False", "lastTransitionTime": after(0)}]}
        machines = at_home({"gracePeriod": 400})
        machines.cluster.upsert_pod(launcher(gated=True, status=told))
        async with machines.leading():
            await at(3600)
            pod = launcher(status=told, nominated="n1", resource_version="2")
            assert [] == machines.asks_about(pod, "n2", "n3")
            await at(3960)
            assert [] == machines.asks_about(pod, "n2", "n3")
            await at(4001)
            assert ["n2", "n3"] == machines.asks_about(pod, "n2", "n3")

    @virtual_time
    async def test_for_a_question_that_was_asked_about_it(self) -> None:
        machines = Watched({"policy": "soft"})
        machines.handle = replace(machines.handle, is_asked=lambda: True)
        machines.restart()
        machines.machine(home="n1")
        async with machines.leading():
            assert ["n2", "n3"] == machines.asks_about(launcher(), "n2", "n3")
            assert (not machines.plugin._waiting_pods._waits, not machines.plugin._attempts._attempts) == (True, True)

    @virtual_time
    async def test_once_it_is_bound_or_ends(self) -> None:
        machines = waiting()
        async with machines.leading():
            await at(1)
            for name in ("bound", "ending", "gone", "gated"):
                machines.asks(launcher(name))
            machines.cluster.upsert_pod(launcher("bound", node="n2", resource_version="2"))
            machines.cluster.upsert_pod(launcher("ending", terminating=True, resource_version="2"))
            machines.cluster.upsert_pod(launcher("gated", gated=True, resource_version="2"))
            machines.cluster.delete_pod(("default", "gone"))
            await at(100)
            machines.uncordon("n1")
            await at(700)

        assert [] == machines.woken
        assert not machines.plugin._waiting_pods._waits

    @virtual_time
    async def test_while_its_owner_cannot_be_read(self) -> None:
        machines = waiting()
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            machines.cluster.mark_unreadable(MACHINE, ("default", "db"), "odd")
            machines.uncordon("n1")
            await at(100)
            assert [] == machines.woken
            machines.cluster.mark_readable(MACHINE, ("default", "db"))
            await at(110)

        assert 1 == len(machines.woken)

    @virtual_time
    async def test_a_pod_without_a_home_of_ours_is_none_of_our_business(self) -> None:
        machines = Watched()
        machines.machine()
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            await at(100)
            machines.cordon("n1")
            await at(700)

        assert [] == machines.woken

    @virtual_time
    async def test_a_quiet_cluster_asks_for_no_verdict(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = waiting("hard")
        asked: list[float] = []
        decide = machines.plugin._decider.of

        def counted(*args: object) -> object:
            asked.append(now())
            return decide(*args)  # type: ignore[arg-type]

        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            await at(40)
            monkeypatch.setattr(machines.plugin._decider, "of", counted)
            await at(3600)

        assert [] == asked


class TestTakingOver:
    @virtual_time
    async def test_every_pod_is_woken_once_those_first_that_nothing_holds(self) -> None:
        """What became of them while nobody decided, nobody knows."""
        machines = Watched()
        machines.cordon("n1")
        for number in range(30):
            machines.machine(f"vm-{number}", home="n1")
            machines.cluster.upsert_pod(launcher(f"held-{number}", f"vm-{number}"))
        machines.machine("free")
        machines.cluster.upsert_pod(launcher("free", "free"))
        machines.cluster.upsert_pod(launcher("bound", "free", node="n2"))
        machines.cluster.upsert_pod(launcher("of-another-profile", "vm-0", scheduler="other"))
        async with machines.leading():
            await at(300)

        assert ["free", *(f"held-{number}" for number in range(30))] == [who for _, who in machines.woken]
        times = [when for when, _ in machines.woken]
        assert max(times.count(it) for it in times) == AT_ONCE


class TestTold:
    """On the pod, and where somebody has to do something, or a grace is over, on the owner too."""

    def of_pod(self, machines: Watched) -> list[Told]:
        return [it for it in machines.events.told if it.regarding == POD]

    @virtual_time
    async def test_what_a_pod_waits_for_and_until_when(self) -> None:
        machines = waiting()
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            await at(500)

        note = f"the pod waits: the home n1 is away (cordoned); from {after(GRACE)} on it may start elsewhere"
        assert [Told(POD, "Node n1", "Normal", "HomeAway", "Watching", note)] == self.of_pod(machines)

    @virtual_time
    async def test_with_hard_it_waits_for_ever(self) -> None:
        machines = waiting("hard")
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            await at(20)
            machines.cluster.delete_node("n1")
            await at(30)

        assert ["HomeAway", "HomeGone"] == [it.reason for it in self.of_pod(machines)]
        assert "the pod waits: the home n1 is gone" == self.of_pod(machines)[-1].note

    @virtual_time
    async def test_a_grace_that_is_over(self) -> None:
        machines = waiting()
        with capture_logs() as said:
            async with machines.leading():
                await at(1)
                machines.asks(launcher())
                await at(3000)

        away = f"the home n1 is away (cordoned) since {after(0)}"
        note = f"{away}: the grace is over, and default/launcher may start elsewhere"
        of_owner = [it for it in machines.events.told if it.reason == "GraceOver" and it.regarding == DB]
        assert [Told(DB, POD, "Normal", "GraceOver", "Watching", note)] == of_owner
        assert Told(POD, "Node n1", "Normal", "GraceOver", "Watching", note) == self.of_pod(machines)[-1]
        line = {"event": "grace over", "log_level": "info", "machine": DB, "node": "n1", "pod": "default/launcher"}
        assert [line] == [it for it in said if it["event"] == "grace over"]
        ((when, _),) = machines.woken
        assert GRACE <= when <= GRACE + LATEST
        assert ["n2", "n3"] == machines.asks(launcher())

    @virtual_time
    @pytest.mark.parametrize(
        ("policy", "does"), [("hard", "waits"), ("grace", "may start where it can"), ("soft", "may start where it can")]
    )
    async def test_a_volume_that_the_home_cannot_use(self, policy: str, does: str) -> None:
        machines = at_home({"policy": policy})
        claim = PERSISTENT_VOLUME_CLAIMS.decode(encoded(claim_object(volume="pv-1")))
        machines.cluster.others.upsert(PERSISTENT_VOLUME_CLAIMS, claim)
        volume = PERSISTENT_VOLUMES.decode(encoded(volume_object(claim="data", zone="far")))
        machines.cluster.others.upsert(PERSISTENT_VOLUMES, volume)
        with capture_logs() as said:
            async with machines.leading():
                await at(1)
                machines.asks(launcher(more=mounting("data")))
                await at(100)

        note = (
            f"the home n1 cannot use a volume of default/launcher, which {does} "
            "(PersistentVolumeClaim data is bound to PersistentVolume pv-1): move the home to where the volume is, "
            "or release it, by homeport.dev/home; or restore the volume at home"
        )
        assert [
            Told(DB, POD, "Warning", "HomeElsewhere", "Watching", note),
            Told(POD, "Node n1", "Warning", "HomeElsewhere", "Watching", note),
        ] == machines.events.told
        assert ["home elsewhere"] == [it["event"] for it in said]

    @virtual_time
    async def test_a_pod_that_goes_its_way_at_once_is_told_nothing(self) -> None:
        machines = at_home()
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            machines.cluster.upsert_pod(launcher(node="n1", resource_version="2"))
            await at(100)

        assert [] == machines.events.told


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
        self.handle = replace(self.handle, profile=replace(self.handle.profile, why=self._why))
        self.restart()
        self.machine(home="n1")

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


@virtual_time
@pytest.mark.parametrize(
    ("policy", "until"), [("hard", ""), ("grace", f"; from {after(901)} on it may start elsewhere")]
)
async def test_on_the_pod_and_on_its_owner(policy: str, until: str) -> None:
    machines = Asked({"policy": policy})
    with capture_logs() as lines:
        async with machines.leading():
            await at(1)
            machines.waits()
            await at(120)

    assert told(until) == machines.events.told
    ((when, who, node), *_) = machines.asked
    assert (("launcher", "n1"), True) == ((who, node), when <= 1 + FIRST_ASK_SECONDS + TICKS)
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


@virtual_time
async def test_where_nothing_is_known_nothing_is_said_and_it_is_asked_again_ever_more_rarely() -> None:
    machines = Asked({"policy": "hard"}, NodeVerdict((), ("InterPodAffinity",)))
    async with machines.leading():
        await at(1)
        machines.waits()
        await at(100)
        assert [] == machines.events.told
        pauses = [later - earlier for (earlier, *_), (later, *_) in pairwise(machines.asked)]
        assert [True] * len(pauses) == [
            ASK_AGAIN_SECONDS * 2**number <= it <= ASK_AGAIN_SECONDS * 2**number + TICKS
            for number, it in enumerate(pauses)
        ]
        machines.verdict = FULL
        await at(400)

    assert told() == machines.events.told


@virtual_time
async def test_other_reasons_are_told_anew() -> None:
    machines = Asked({"policy": "hard"})
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
    async with machines.leading():
        await at(1)
        machines.waits()
        await at(200)

    over = [it for it in machines.events.told if it.reason == "GraceOver"]
    why = "the home n1 did not take default/launcher (Insufficient cpu)"
    note = f"{why} since {after(1)}: the grace is over, and default/launcher may start elsewhere"
    assert {(DB, note), (POD, note)} == {(it.regarding, it.note) for it in over}


@virtual_time
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
async def test_what_has_changed_while_it_was_asked_is_not_told(change: Callable[[Asked], object]) -> None:
    machines = Asked({"policy": "hard"})
    machines.meanwhile = lambda: change(machines)
    async with machines.leading():
        await at(1)
        machines.waits()
        await at(10)

    assert 1 == len(machines.asked)
    assert "HomeRefuses" not in machines.events.reasons


@virtual_time
async def test_a_pod_that_is_not_held_is_not_asked_about() -> None:
    """Nor one that starts within moments, since its home was merely not shown."""
    machines = Asked()
    machines.machine("soft", home="n1", policy="soft")
    async with machines.leading():
        await at(1)
        machines.asks(refused("soft", "soft"))
        machines.waits()
        await at(1 + FIRST_ASK_SECONDS / 2)
        machines.cluster.upsert_pod(bound(refused(), "n1", {}))
        await at(60)

    assert [] == machines.asked


@virtual_time
async def test_no_more_pods_are_kept_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_pods, "MOST", 2)
    machines = Asked({"policy": "hard"})
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
    monkeypatch.setattr(waiting_pods, "MOST_OF_NAMESPACE", 1)
    machines = Asked({"policy": "hard"})
    pods = machines.plugin._waiting_pods.refused
    for name, namespace in (("a", "one"), ("b", "one"), ("c", "two")):
        pods.note(make_pod(name, uid=name, namespace=namespace))
    assert ["a", "c"] == [*pods._pods]

    pods.forget("a")
    pods.note(make_pod("b", uid="b", namespace="one"))
    assert ["c", "b"] == [*pods._pods]


def test_reasons_are_few_and_short() -> None:
    many = tuple(f"Insufficient {number}" for number in range(6))

    assert "Insufficient 0, Insufficient 1, Insufficient 2, Insufficient 3, and 2 more" == reasons_text(many)
    assert reasons_text(("x" * 10_000,)) == shown("x" * 10_000)
    assert "'\\x1b[2J'" == reasons_text(("\x1b[2J",))


class Slow(Watched):
    """Each write takes its time, and then fails."""

    async def annotate(self, kind: Kind[Any], found: AnnotatedObject, annotations: Mapping[str, str | None]) -> None:
        self.writes.append(now() - BEGINS)
        await asyncio.sleep(10)
        raise OSError("no answer")


@virtual_time
@pytest.mark.parametrize(
    ("world", "count"),
    [
        pytest.param(Slow, 100, id="nobody answers"),
        pytest.param(Watched, 1000, id="a thousand lived on the node that went: twenty seconds of writing"),
    ],
)
async def test_writes_keep_no_pod_from_being_woken(world: type[Watched], count: int) -> None:
    machines = world()
    for number in range(count):
        machines.machine(f"vm-{number}", home="n1")
    machines.machine(home="n2")
    machines.cordon("n1", "n2")
    async with machines.leading():
        await asyncio.sleep(1)
        machines.asks(launcher())
        await asyncio.sleep(9)
        machines.uncordon("n2")
        await asyncio.sleep(60)

    assert [10] == [int(when) // 2 * 2 for when, _ in machines.woken if when > 1]
    assert machines.writes[-1] > 20
