"""A PersistentVolumeClaim keeps the home of the pods that use it, where a rule says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import pytest

from app.framework.interface import Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from plugins.sticky_node.claims import MOST_OTHERS
from plugins.sticky_node.memory import HOMES
from plugins.sticky_node.owners import Missing, Owners
from plugins.sticky_node.plugin import REASON_OWNER_UNKNOWN, StickyNode
from plugins.sticky_node.steps import Steps
from tests.api.virtual import virtual_time
from tests.builders import ZONE, JsonObject, claim_object, controller, encoded, mounting, pod_object, volume_object
from tests.unit.plugins.sticky_node.machines import (
    HOME,
    HOME_OWNER,
    HOME_POD,
    INSTANCE,
    NODES,
    SET,
    Machines,
    reference,
)
from tests.unit.plugins.sticky_node.watched import SINCE, Watched, after

ALL: Final = list(NODES)
KEEPS: Final = {"example.com/home": "kept"}
CLAIMS: Final[JsonObject] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "selector": {"matchLabels": KEEPS},
}
SETS: Final[JsonObject] = {"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}
MANY: Final = ("ReadWriteMany",)
ATTACHES: Final = {**controller("Pod", "launcher", api_version="v1"), "uid": "launcher"}
"""Controller of the pods by which KubeVirt attaches volumes."""

FILLS: Final = {**controller("PersistentVolumeClaim", "data", api_version="v1"), "uid": "uid-data"}
"""Controller of the pods by which volumes are imported."""


def machines_of(*rules: JsonObject, **args: Any) -> Machines:
    return Machines({"owners": [*rules, CLAIMS], **args})


def add_claim(machines: Machines, name: str = "data", *, keeps: bool = True, **fields: Any) -> None:
    """A claim comes or changes. ``home``: what a person, or an earlier Homeport, wrote there."""
    home = fields.pop("home", "")
    version = fields.pop("version", "1")
    annotations = {**fields.pop("annotations", {}), **({HOME: home} if home else {})}
    found = claim_object(name, annotations=annotations, labels=KEEPS if keeps else {}, **fields)
    found["metadata"] |= {"resourceVersion": version, **({"uid": f"uid-{name}"} if "uid" not in fields else {})}
    kind = PERSISTENT_VOLUME_CLAIMS
    machines.cluster.others.upsert(kind, kind.decode(encoded(found)))


def written(machines: Machines, name: str = "data") -> dict[str, str]:
    return machines.annotations(PERSISTENT_VOLUME_CLAIMS, name)


def change(machines: Machines, edited: dict[str, str], name: str = "data") -> None:
    """A person edits: these are all its annotations now."""
    add_claim(machines, name, annotations=edited, version="1000")


def user(machines: Machines, name: str = "one", *claims: str, ephemeral: tuple[str, ...] = (), **fields: Any) -> Pod:
    """A pod with these claims; with ``data`` if nothing is said."""
    more = mounting(*(claims or (() if ephemeral else ("data",))), ephemeral=ephemeral)
    return machines.cluster.core.decode_pod(encoded(pod_object(name, more=more, **fields)))


def kept_by(machines: Machines, pod: Pod) -> str:
    found = machines.plugin._owners.of(pod)
    return "" if found is None else f"missing {found}" if isinstance(found, Missing) else found.found.name


class TestWhich:
    """Of the claims of a pod."""

    @pytest.mark.parametrize(
        ("claims", "expected"),
        [
            pytest.param(("data",), "data", id="one"),
            pytest.param(("other",), "", id="one that no rule selects"),
            pytest.param(("other", "data"), "data", id="the one that is selected"),
            pytest.param(("logs", "data"), "data", id="the first by name"),
            pytest.param(("data", "logs"), "data", id="in whatever order"),
            pytest.param(("all", "logs"), "logs", id="one of a single node before one of many"),
            pytest.param(("all",), "all", id="one of many, alone"),
            pytest.param(("pod",), "pod", id="one of a single pod"),
            pytest.param(("z-2", "z-1"), "missing PersistentVolumeClaim default/z-1", id="the first that is not there"),
            pytest.param(("zzz", "data"), "missing PersistentVolumeClaim default/zzz", id="one that is not there yet"),
        ],
    )
    def test_it_follows_from_what_they_are(self, claims: tuple[str, ...], expected: str) -> None:
        machines = machines_of()
        once = ("ReadWriteOnce",)
        for name, modes in (("data", once), ("logs", once), ("all", MANY), ("pod", ("ReadWriteOncePod",))):
            add_claim(machines, name, modes=modes)
        add_claim(machines, "other", keeps=False)

        assert expected == kept_by(machines, user(machines, "one", *claims))

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param({"ephemeral": ("data",)}, id="a volume that ends with the pod"),
            pytest.param({"namespace": "shop"}, id="another namespace"),
            pytest.param({"owner": ATTACHES}, id="a pod that attaches a volume for another"),
            pytest.param({"owner": FILLS}, id="a pod that fills the claim"),
        ],
    )
    def test_a_pod_that_does_not_live_on_it_has_no_home(self, pod: dict[str, Any]) -> None:
        machines = machines_of()
        add_claim(machines, home="n2")
        add_claim(machines, namespace="shop", keeps=False, home="n2")
        add_claim(machines, "one-data", home="n2")

        assert ALL == machines.allowed(user(machines, **pod))

    def test_a_pod_waits_for_a_claim_that_is_not_there_yet(self) -> None:
        machines = machines_of()
        pod = user(machines)

        assert REASON_OWNER_UNKNOWN == machines.allowed(pod)
        assert [(PERSISTENT_VOLUME_CLAIMS, "default", "data")] == list(machines.plugin.required_objects(pod))

    def test_nothing_is_said_of_a_claim_that_cannot_be_read(self) -> None:
        machines = machines_of()
        machines.cluster.leave_out(PERSISTENT_VOLUME_CLAIMS, ("default", "data"), "odd")

        with pytest.raises(Unreadable):
            machines.allowed(user(machines))

    @pytest.mark.parametrize(
        ("rules", "expected"),
        [
            pytest.param([SETS], ["n3"], id="a rule for its set"),
            pytest.param([], ["n2"], id="none"),
        ],
    )
    def test_a_rule_for_its_controllers_comes_first(self, rules: list[JsonObject], expected: list[str]) -> None:
        machines = machines_of(*rules)
        machines.add(SET, **{"home.0": "n3"})
        add_claim(machines, home="n2")

        assert expected == machines.allowed(user(machines, "db-0", owner=reference(SET)))
        assert ["n2"] == machines.allowed(user(machines, "bare"))

    def test_without_a_rule_claims_keep_nothing(self) -> None:
        """Nor are the volumes of all pods read then."""
        machines = Machines()
        add_claim(machines, home="n2")

        assert ALL == machines.allowed(user(machines))
        with pytest.raises(LookupError):
            machines.cluster.by_claim()


class TestShared:
    """Of a claim that many nodes can mount, the home of who uses it alone."""

    @pytest.mark.parametrize(
        ("other", "modes", "expected"),
        [
            pytest.param({}, MANY, ALL, id="another waits"),
            pytest.param({"node": "n3"}, MANY, ALL, id="another runs"),
            pytest.param({"node": "n3"}, ("ReadOnlyMany",), ALL, id="another reads"),
            pytest.param({"node": "n3"}, ("ReadWriteOnce", "ReadWriteMany"), ALL, id="either way"),
            pytest.param({"node": "n3", "terminating": True}, MANY, ["n2"], id="another is going"),
            pytest.param({"node": "n3", "phase": "Succeeded"}, MANY, ["n2"], id="another has finished"),
            pytest.param({"node": "n3", "namespace": "shop"}, MANY, ["n2"], id="one of another namespace"),
            pytest.param({"node": "n3", "owner": ATTACHES}, MANY, ["n2"], id="one that attaches the volume for it"),
            pytest.param({"node": "n2"}, ("ReadWriteOnce",), ["n2"], id="of a single node: it has to go there"),
        ],
    )
    def test_who_else_uses_it(self, other: dict[str, Any], modes: tuple[str, ...], expected: list[str]) -> None:
        machines = machines_of()
        add_claim(machines, modes=modes, home="n2")
        mine = user(machines)
        for pod in (mine, user(machines, "two", **other)):
            machines.cluster.upsert_pod(pod)

        assert expected == machines.allowed(mine)

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param({"node": "n3", "terminating": True}, id="going"),
            pytest.param({"node": "n3", "owner": ATTACHES}, id="attaching it"),
        ],
    )
    def test_of_many_that_play_no_part_a_bound_is_looked_at(self, other: dict[str, Any]) -> None:
        """For each pod of thousands it would be thousands."""
        machines = machines_of()
        add_claim(machines, modes=MANY, home="n2")
        mine = user(machines)
        machines.cluster.upsert_pod(mine)
        for number in range(MOST_OTHERS):
            machines.cluster.upsert_pod(user(machines, f"other-{number}", **other))
        assert ["n2"] == machines.allowed(mine)

        machines.cluster.upsert_pod(user(machines, "one-more", **other))
        assert ALL == machines.allowed(mine)

        machines.cluster.delete_pod(("default", "other-7"))
        assert ["n2"] == machines.allowed(mine)

    async def test_replicas_make_no_home(self) -> None:
        machines = machines_of()
        add_claim(machines, modes=MANY)
        pods = [user(machines, name) for name in ("one", "two")]
        for pod in pods:
            machines.cluster.upsert_pod(pod)

        for pod, node in zip(pods, NODES, strict=False):
            assert {} == await machines.bind(pod, node)
        await machines.plugin.repair()

        assert {} == written(machines)


class TestUnselected:
    """Anybody who may make claims may make many that no rule selects: whoever goes over them takes turns."""

    def many(self) -> Machines:
        machines = Machines({"owners": [{**CLAIMS, "remember": "name"}]})
        for number in range(200):
            add_claim(machines, f"c-{number}", keeps=False, home="n2")
        return machines

    @pytest.mark.parametrize(
        "figures",
        [
            pytest.param(lambda it: it._census.figures(), id="the census"),
            pytest.param(lambda it: it._standing_census.figures(), id="the census of nodes"),
            pytest.param(lambda it: it.homes(), id="the list"),
        ],
    )
    def test_who_counts(self, figures: Callable[[StickyNode], Iterable[object]]) -> None:
        assert list(figures(self.many().plugin)).count(None) >= 200 // 64

    @pytest.mark.parametrize(
        "work",
        [
            pytest.param(lambda it: it._watch._homes.look(Steps(asyncio.sleep)), id="who looks at homes"),
            pytest.param(lambda it: it._upkeep._sealing.all(), id="who seals them"),
            pytest.param(lambda it: it._upkeep._remembering.note(), id="who remembers them"),
        ],
    )
    async def test_who_writes(
        self, work: Callable[[StickyNode], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turns: list[None] = []

        async def turn(_: Steps) -> None:
            turns.append(None)

        monkeypatch.setattr(Steps, "__call__", turn)
        machines = self.many()

        await work(machines.plugin)

        assert (len(turns) >= 200, {HOME: "n2"}) == (True, written(machines, "c-7"))


class TestMade:
    async def test_whoever_uses_the_claim_next_comes_back(self) -> None:
        machines = machines_of()
        add_claim(machines)
        first = user(machines)

        assert {HOME: "n2"} == await machines.bind(first, "n2")

        assert {HOME: "n2", HOME_POD: first.uid, HOME_OWNER: "uid-data n2"} == written(machines)
        machines.cluster.delete_pod(first.key)
        for name in ("one", "of-another-name"):
            assert ["n2"] == machines.allowed(user(machines, name, uid="new"))
        assert "PersistentVolumeClaim default/data" in machines.events.told[0].regarding

    async def test_a_crash_before_it_is_written_loses_nothing(self) -> None:
        machines = machines_of()
        add_claim(machines)
        await machines.bind(user(machines), "n2", copies=False)
        machines.restart()
        assert {} == written(machines)

        await machines.plugin.repair()

        assert "n2" == written(machines)[HOME]

    async def test_two_pods_of_one_claim_make_one_home(self) -> None:
        machines = machines_of()
        add_claim(machines)
        first, second, other = user(machines), user(machines, "two"), user(machines, "three", "logs")
        machines.reserve(first, "n2")

        assert ["n2"] == machines.allowed(second)
        add_claim(machines, "logs")
        depends = [machines.plugin.depends_on(*it) for it in ((second, first), (other, first))]
        assert [True, False] == depends

    async def test_a_soft_home_moves_with_the_pod(self) -> None:
        machines = machines_of(policy="soft")
        add_claim(machines)
        await machines.bind(user(machines), "n2")
        machines.node("n2", unschedulable=True)
        second = user(machines, "two")
        assert ["n1", "n3"] == machines.allowed(second)

        await machines.bind(second, "n3")

        assert "n3" == written(machines)[HOME]

    async def test_a_person_releases_it(self) -> None:
        machines = machines_of()
        add_claim(machines)
        first = user(machines)
        await machines.bind(first, "n2")
        change(machines, {key: it for key, it in written(machines).items() if key != HOME})
        machines.cluster.delete_pod(first.key)
        await machines.plugin.repair()
        second = user(machines, "two")
        assert ALL == machines.allowed(second)

        await machines.bind(second, "n3")

        assert "n3" == written(machines)[HOME]

    async def test_a_claim_may_say_how_strict_its_home_is(self) -> None:
        machines = machines_of()
        add_claim(machines, home="n2", annotations={"homeport.dev/policy": "off"})

        assert ALL == machines.allowed(user(machines))


class TestWhose:
    async def test_a_copy_of_a_claim_has_no_home(self) -> None:
        machines = machines_of()
        add_claim(machines)
        await machines.bind(user(machines), "n2")
        add_claim(machines, "copy", annotations=written(machines))
        assert ALL == machines.allowed(user(machines, "two", "copy"))

        await machines.plugin.repair()

        assert ({}, "n2") == (written(machines, "copy"), written(machines)[HOME])
        assert ["HomeNotInherited"] == [it.reason for it in machines.events.told if "copy" in it.regarding]

    async def test_what_a_person_wrote_is_sealed_on_claims_that_keep_homes_alone(self) -> None:
        machines = machines_of()
        add_claim(machines, home="n2")
        add_claim(machines, "other", keeps=False, home="n2")

        await machines.plugin.repair()

        assert {HOME: "n2", HOME_OWNER: "uid-data n2"} == written(machines)
        assert {HOME: "n2"} == written(machines, "other")

    @pytest.mark.parametrize(
        ("rule", "remembered", "allowed"),
        [
            pytest.param({}, 0, ALL, id="a volume made anew is empty"),
            pytest.param({"remember": "name"}, 1, ["n2"], id="unless the rule says otherwise"),
        ],
    )
    async def test_a_claim_made_anew(self, rule: JsonObject, remembered: int, allowed: list[str]) -> None:
        machines = Machines({"owners": [{**CLAIMS, **rule}]})
        add_claim(machines)
        first = user(machines)
        await machines.bind(first, "n2")
        await machines.plugin.repair()
        assert remembered == len(list(machines.cluster.every(HOMES)))
        machines.cluster.delete_pod(first.key)
        machines.gone(PERSISTENT_VOLUME_CLAIMS, "data")
        add_claim(machines, uid="new")

        assert allowed == machines.allowed(user(machines, "two"))

    async def test_what_is_remembered_is_given_back_to_claims_that_keep_homes_alone(self) -> None:
        machines = Machines({"owners": [{**CLAIMS, "remember": "name"}]})
        add_claim(machines)
        first = user(machines)
        await machines.bind(first, "n2")
        await machines.plugin.repair()
        machines.gone(PERSISTENT_VOLUME_CLAIMS, "data")
        add_claim(machines, uid="new", keeps=False)

        await machines.plugin.repair()
        assert {} == written(machines)

        add_claim(machines, uid="new", version="2")
        await machines.plugin.repair()
        assert "n2" == written(machines)[HOME]


class TestStates:
    @pytest.mark.parametrize(
        ("policy", "allowed"),
        [
            pytest.param("hard", [], id="hard"),
            pytest.param("soft", ["n3"], id="soft"),
            pytest.param("grace", ["n3"], id="grace"),
        ],
    )
    def test_its_volume_is_elsewhere(self, policy: str, allowed: list[str]) -> None:
        machines = machines_of(policy=policy)
        machines.node("n3", metadata={"labels": {ZONE: "z3"}})
        add_claim(machines, volume="pv-1", home="n2")
        volume = volume_object(claim="data", zone="z3")
        machines.cluster.others.upsert(PERSISTENT_VOLUMES, PERSISTENT_VOLUMES.decode(encoded(volume)))

        assert allowed == machines.allowed(user(machines))

    async def test_a_machine_that_moves_is_not_held(self) -> None:
        machines = machines_of()
        add_claim(machines, home="n2")
        labels = {"kubevirt.io/migrationJobUID": "1"}
        target = user(machines, "target", labels=labels, owner=reference(INSTANCE))
        assert ALL == machines.allowed(target)

        await machines.bind(target, "n3")

        assert "n2" == written(machines)[HOME]

    @virtual_time
    @pytest.mark.parametrize(
        ("there", "then", "latest"),
        [
            pytest.param(
                lambda machines: add_claim(machines, home="n1"),
                lambda machines: add_claim(machines, keeps=False, home="n1", version="2"),
                52.0,
                id="its claim keeps homes no more",
            ),
            pytest.param(lambda _: None, lambda machines: add_claim(machines, keeps=False), 52.0, id="its claim comes"),
            pytest.param(
                lambda machines: add_claim(machines, home="n1", modes=MANY),
                lambda machines: machines.cluster.upsert_pod(user(machines, "two")),
                82.0,
                id="its claim is shared, which is looked at every half minute",
            ),
        ],
    )
    async def test_a_pod_that_nothing_holds_any_more_is_woken(
        self, there: Callable[[Machines], None], then: Callable[[Machines], None], latest: float
    ) -> None:
        machines = Watched({"owners": [CLAIMS], "policy": "hard"})
        there(machines)
        machines.node("n1", unschedulable=True)
        pod = user(machines)
        async with machines.leading():
            await asyncio.sleep(1)
            assert [] == machines.asks(pod)
            await asyncio.sleep(49)
            then(machines)
            await asyncio.sleep(600)

        assert [("one", True)] == [(who, when <= latest) for when, who in machines.woken if when >= 50]
        assert ALL == sorted(machines.asks(pod))

    @virtual_time
    async def test_the_clock_of_its_grace_is_on_the_claim_and_its_end_wakes_the_pod(self) -> None:
        machines = Watched({"owners": [CLAIMS], "gracePeriod": 900})
        add_claim(machines, home="n1")
        machines.cordon("n1")
        pod = user(machines)
        async with machines.leading():
            await asyncio.sleep(1)
            assert [] == machines.asks(pod)
            await asyncio.sleep(10)
            assert f"away {after(0)} n1" == written(machines)[SINCE]
            await asyncio.sleep(1000)

        ((when, who),) = machines.woken
        assert ("one", True) == (who, 900 <= when <= 902)
        assert ["n2", "n3"] == machines.asks(pod)

    @virtual_time
    async def test_who_releases_it_wakes_the_pod(self) -> None:
        machines = Watched({"owners": [CLAIMS], "policy": "hard"})
        add_claim(machines, home="n1")
        machines.cordon("n1")
        pod = user(machines)
        async with machines.leading():
            await asyncio.sleep(1)
            assert [] == machines.asks(pod)
            await asyncio.sleep(100)
            change(machines, {})
            await asyncio.sleep(2)

        assert ["one"] == [who for _, who in machines.woken]
        assert ALL == machines.asks(pod)

    @virtual_time
    async def test_who_comes_to_decide_wakes_each_pod_once(self) -> None:
        """Also one that its set and its claim both lead to."""
        machines = Watched({"owners": [SETS, CLAIMS]})
        machines.add(SET)
        for name in ("data", "logs"):
            add_claim(machines, name)
        machines.cluster.upsert_pod(user(machines, "db-0", "data", "logs", owner=reference(SET)))
        machines.cluster.upsert_pod(user(machines, "bare", "logs"))
        machines.cluster.upsert_pod(user(machines, "running", "logs", node="n1"))
        async with machines.leading():
            await asyncio.sleep(60)

        assert ["bare", "db-0"] == sorted(who for _, who in machines.woken)


class TestListed:
    def listed(self, machines: Machines) -> list[tuple[str, str, str, str]]:
        found = [it for it in machines.plugin.homes() if it is not None]
        return [(it.owner.kind, it.owner.name, it.node, it.machine) for it in found]

    def test_homes_of_claims_are_listed_and_counted(self) -> None:
        machines = machines_of()
        for name, home in (("data", "n2"), ("logs", "n1"), ("idle", "n3"), ("none", "")):
            add_claim(machines, name, home=home)
        add_claim(machines, "other", keeps=False, home="n1")
        for pod in (user(machines, node="n2"), user(machines, "two", "logs"), user(machines, "three", "none")):
            machines.cluster.upsert_pod(pod)
        machines.cluster.upsert_pod(user(machines, "going", "idle", node="n3", terminating=True))

        kind = "PersistentVolumeClaim"
        assert [
            (kind, "data", "n2", "at_home"),
            (kind, "idle", "n3", "idle"),
            (kind, "logs", "n1", "waiting"),
            (kind, "none", "", "waiting"),
        ] == sorted(self.listed(machines))
        figures = {tuple(it.labels.values()): it.value for it in machines.plugin.figures() if it and it.labels}
        assert (1, 1, 1) == (figures["at_home",], figures["waiting",], figures["idle",])
        assert 3 == figures["usable", "grace"]
        assert [(kind, False)] == [(it.kind, it.per_slot) for it in machines.plugin.keepers()]

    def test_a_claim_that_is_not_selected_any_more_keeps_nothing(self) -> None:
        machines = machines_of()
        add_claim(machines, home="n2")
        assert 1 == len(self.listed(machines))

        add_claim(machines, home="n2", keeps=False, version="2")

        assert ([], ALL) == (self.listed(machines), machines.allowed(user(machines)))


def test_no_claim_is_looked_up_for_a_pod_it_cannot_matter_to(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = machines_of()
    mine, same = user(machines), user(machines, "two")
    others = [
        user(machines, "three", "logs"),
        user(machines, "four", namespace="shop"),
        user(machines, ephemeral=("v",)),
    ]

    def unreadable(*_: object) -> None:
        raise Unreadable("PersistentVolumeClaim", "default/data", "odd")

    monkeypatch.setattr(machines.cluster, "get", unreadable)

    assert [False] * 3 == [machines.plugin.depends_on(mine, it) for it in others]
    with pytest.raises(Unreadable):
        machines.plugin.depends_on(mine, same)


def test_a_pod_is_found_again_by_its_claim() -> None:
    machines = machines_of(SETS)
    owners: Owners = machines.plugin._owners
    pods = [user(machines), user(machines, "two", owner=controller("ReplicaSet", "web"))]
    for pod in pods:
        machines.cluster.upsert_pod(pod)
        assert pod == owners.newest_pod(pod)
        machines.cluster.delete_pod(pod.key)
        assert owners.newest_pod(pod) is None
