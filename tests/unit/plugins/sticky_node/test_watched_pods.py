"""A pod that waits for a home is woken within 2 s of what lets it go, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from plugins.sticky_node import watched_pods
from plugins.sticky_node.watched_pods import AT_ONCE
from tests.api.virtual import now, virtual_time
from tests.builders import claim_object, encoded, mounting, volume_object
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import HOME, MACHINE
from tests.unit.plugins.sticky_node.watched import BEGINS, Watched, after, launcher, make_node

DB = "VirtualMachine default/db"
POD = "Pod default/launcher"
GRACE = 900.0
LATEST = 2.0
"""Seconds until the scheduler is asked to try a pod again."""


async def at(seconds: float) -> None:
    """Until so long after noon."""
    await asyncio.sleep(BEGINS + seconds - now())


def waiting(policy: str = "grace") -> Watched:
    """A machine whose home n1 is cordoned."""
    machines = Watched({"policy": policy, "gracePeriod": GRACE})
    machines.machine(home="n1")
    machines.cordon("n1")
    return machines


class TestWoken:
    @virtual_time
    async def test_once_the_home_takes_pods_again(self) -> None:
        machines = waiting()
        async with machines.leading():
            await at(1)
            assert [] == machines.asks(launcher())
            await at(100)
            machines.uncordon("n1")
            await at(700)

        ((when, who),) = machines.woken
        assert ("launcher", True) == (who, 100 <= when <= 100 + LATEST)
        assert ["n1"] == machines.asks(launcher())

    @virtual_time
    async def test_once_the_grace_is_over(self) -> None:
        machines = waiting()
        async with machines.leading():
            await at(30)
            assert [] == machines.asks(launcher())
            await at(3000)

        ((when, _),) = machines.woken
        assert GRACE <= when <= GRACE + LATEST
        assert ["n2", "n3"] == machines.asks(launcher())

    @virtual_time
    async def test_once_the_grace_is_over_that_the_pod_itself_counts(self) -> None:
        """The home is usable and full: what the scheduler says of the pod comes after the first refusal."""
        machines = Watched({"gracePeriod": GRACE})
        machines.machine(home="n1")
        async with machines.leading():
            await at(30)
            assert ["n1"] == machines.asks(launcher())
            await at(32)
            since = {"type": "PodScheduled", "status": "False", "lastTransitionTime": after(30)}
            machines.cluster.upsert_pod(launcher(resource_version="2", status={"conditions": [since]}))
            await at(3000)

        ((when, _),) = machines.woken
        assert 30 + GRACE <= when <= 30 + GRACE + LATEST

    @pytest.mark.parametrize(
        "edit",
        [
            pytest.param(lambda machines: machines.change(MACHINE, {HOME: "n2"}), id="moved"),
            pytest.param(lambda machines: machines.change(MACHINE, {}), id="released"),
            pytest.param(lambda machines: machines.change(MACHINE, {HOME: "n1", "policy": "soft"}), id="made soft"),
            pytest.param(lambda machines: machines.leaves("n1"), id="its node leaves"),
        ],
    )
    def test_once_the_home_or_its_policy_is_another(self, edit: Callable[[Watched], None]) -> None:
        @virtual_time
        async def story() -> None:
            machines = waiting()
            async with machines.leading():
                await at(1)
                assert [] == machines.asks(launcher())
                await at(50)
                edit(machines)
                await at(700)

            ((when, _),) = machines.woken
            assert 50 <= when <= 50 + LATEST
            assert machines.asks(launcher())

        story()

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
        machines = Watched({"gracePeriod": 400})
        machines.machine(home="n1")
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
        monkeypatch.setattr(watched_pods, "MOST_KNOWN", 5)
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
    async def test_once_its_owner_is_known(self) -> None:
        machines = Watched()
        async with machines.leading():
            await at(1)
            assert [] == machines.asks(launcher())
            await at(50)
            machines.machine(home="n1")
            await at(700)

        ((when, _),) = machines.woken
        assert 50 <= when <= 50 + LATEST

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

    @virtual_time
    async def test_although_somebody_asked_for_an_explanation_first(self) -> None:
        """To explain is to ask filter: the scheduler has heard nothing of that answer."""
        machines = waiting()
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            await at(100)
            machines.uncordon("n1")
            assert ["n1"] == machines.asks(launcher())
            await at(700)

        assert 1 == len(machines.woken)

    @virtual_time
    async def test_once_although_what_refused_it_came_and_went_between_two_looks(self) -> None:
        machines = waiting()
        machines.uncordon("n1")
        async with machines.leading():
            await at(1)
            assert ["n1"] == machines.asks(launcher())
            await at(100)
            machines.cordon("n1")
            assert [] == machines.asks(launcher())
            machines.uncordon("n1")
            await at(700)

        ((when, _),) = machines.woken
        assert 100 <= when <= 100 + LATEST

    @virtual_time
    async def test_two_hundred_at_once(self) -> None:
        machines = Watched()
        machines.cordon("n1")
        for number in range(200):
            machines.machine(f"vm-{number}", home="n1")
        async with machines.leading():
            await at(1)
            for number in range(200):
                machines.asks(launcher(f"pod-{number}", f"vm-{number}"))
            await at(100)
            machines.uncordon("n1")
            await at(700)

        assert {f"pod-{number}" for number in range(200)} == {who for _, who in machines.woken}
        assert 200 == len(machines.woken)
        assert all(100 <= when <= 100 + LATEST for when, _ in machines.woken)


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
        machines = Watched({"gracePeriod": GRACE})
        machines.machine(home="n1")
        machines.cordon("n1")
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
        machines = Watched({"gracePeriod": 400})
        machines.machine(home="n1")
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
            assert (not machines.plugin._watch._pods._waits, not machines.plugin._tries._tries) == (True, True)

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
        assert not machines.plugin._watch._pods._waits

    @virtual_time
    async def test_while_its_owner_cannot_be_read(self) -> None:
        machines = waiting()
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            machines.cluster.leave_out(MACHINE, ("default", "db"), "odd")
            machines.uncordon("n1")
            await at(100)
            assert [] == machines.woken
            machines.cluster.take_back(MACHINE, ("default", "db"))
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
        async with machines.leading():
            await at(300)

        assert ["free", *(f"held-{number}" for number in range(30))] == [who for _, who in machines.woken]
        times = [when for when, _ in machines.woken]
        assert max(times.count(it) for it in times) == AT_ONCE

    @virtual_time
    async def test_pods_of_another_profile_are_none_of_ours(self) -> None:
        machines = waiting()
        machines.cluster.upsert_pod(launcher(scheduler="other"))
        async with machines.leading():
            await at(100)
            machines.uncordon("n1")
            await at(300)

        assert [] == machines.woken

    @virtual_time
    async def test_a_grace_that_ended_meanwhile(self) -> None:
        machines = waiting()
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            await at(10)
        await at(GRACE + 500)
        machines.restart()
        async with machines.leading():
            await at(GRACE + 600)

        ((when, _),) = machines.woken
        assert GRACE + 500 <= when <= GRACE + 500 + LATEST

    @virtual_time
    async def test_what_moves_later_wakes_it_again(self) -> None:
        machines = waiting()
        machines.cluster.upsert_pod(launcher())
        async with machines.leading():
            await at(100)
            machines.uncordon("n1")
            await at(700)

        (first, _), (second, _) = machines.woken
        assert first <= LATEST
        assert 100 <= second <= 100 + LATEST

    @virtual_time
    async def test_a_pod_that_was_never_asked_about_is_found(self) -> None:
        """In-tree filters refused it on all nodes that they did not take from us."""
        machines = waiting()
        async with machines.leading():
            await at(1)
            machines.cluster.upsert_pod(launcher())
            await at(100)
            machines.uncordon("n1")
            await at(700)

        assert 1 == len(machines.woken)


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

    @pytest.mark.parametrize(
        ("policy", "does"), [("hard", "waits"), ("grace", "may start where it can"), ("soft", "may start where it can")]
    )
    def test_a_volume_that_the_home_cannot_use(self, policy: str, does: str) -> None:
        @virtual_time
        async def story() -> None:
            machines = Watched({"policy": policy})
            machines.machine(home="n1")
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

        story()

    @virtual_time
    async def test_a_pod_that_goes_its_way_at_once_is_told_nothing(self) -> None:
        machines = Watched()
        machines.machine(home="n1")
        async with machines.leading():
            await at(1)
            machines.asks(launcher())
            machines.cluster.upsert_pod(launcher(node="n1", resource_version="2"))
            await at(100)

        assert [] == machines.events.told
