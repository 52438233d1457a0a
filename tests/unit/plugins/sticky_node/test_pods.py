"""A PersistentVolumeClaim keeps the home of the pods that use it, where a rule says so.

Whatever stands on an object, so many homes of it are looked at, those of the lowest ordinals first.

From where the bound volumes of a pod can be used, and of what nothing can be said.

A home is taken only from the pod that is the machine: whoever may create pods may say of one that it is.

Pods that their controllers tell apart by an index, and KubeVirt's pods beside the launcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Unpack

import pytest

from app.cache.cluster import Cluster
from app.framework.cycle_state import CycleState
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, owner_kind
from app.kube.volumes import MOST_VOLUMES
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.background import Steps
from plugins.sticky_node.owners import HOMES, Missing, Owners
from plugins.sticky_node.plugin import REASON_OWNER_UNKNOWN, StickyNode
from plugins.sticky_node.pods import HOSTNAME, MOST_OTHERS, MOST_SLOTS, BoundVolumes, slots
from tests.api.virtual import virtual_time
from tests.builders import (
    JsonObject,
    PodFields,
    claim_object,
    controller,
    encoded,
    expression,
    make_node,
    make_pod,
    mounting,
    pod_object,
    term,
    volume_object,
)
from tests.unit.plugins.sticky_node.machines import (
    DATABASE,
    HOME,
    HOME_AFTER,
    HOME_OWNER,
    HOME_POD,
    HOME_REPLACES,
    INSTANCE,
    LWS,
    MACHINE,
    NODES,
    SET,
    Machines,
    launcher,
    own_home,
    reference,
)
from tests.unit.plugins.sticky_node.watched import Watched, counted_turns

ALL: Final = list(NODES)
KEEPS: Final = {"example.com/home": "kept"}
CLAIMS: Final[JsonObject] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "selector": {"matchLabels": KEEPS}}
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


def user(machines: Machines, name: str = "one", *claims: str, ephemeral: tuple[str, ...] = (), **fields: Any) -> Pod:
    """A pod with these claims; with ``data`` if nothing is said."""
    more = mounting(*(claims or (() if ephemeral else ("data",))), ephemeral=ephemeral)
    return machines.cluster.core.decode_pod(encoded(pod_object(name, more=more, **fields)))


def kept_by(machines: Machines, pod: Pod) -> str:
    found = machines.plugin._owners.of(pod)
    return "" if found is None else f"missing {found}" if isinstance(found, Missing) else found.obj.name


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
        machines.cluster.mark_unreadable(PERSISTENT_VOLUME_CLAIMS, ("default", "data"), "odd")

        with pytest.raises(Unreadable):
            machines.allowed(user(machines))

    @pytest.mark.parametrize(
        ("rules", "expected"),
        [pytest.param([SETS], ["n3"], id="a rule for its set"), pytest.param([], ["n2"], id="none")],
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


@pytest.fixture
def unselected() -> Machines:
    machines = Machines({"owners": [{**CLAIMS, "remember": "name"}]})
    for number in range(200):
        add_claim(machines, f"c-{number}", keeps=False, home="n2")
    return machines


class TestUnselected:
    """Anybody who may make claims may make many that no rule selects: whoever goes over them takes turns."""

    @pytest.mark.parametrize(
        "figures",
        [
            pytest.param(lambda it: it._pod_state_metrics.figures(), id="the census"),
            pytest.param(lambda it: it._node_state_metrics.figures(), id="the census of nodes"),
            pytest.param(lambda it: it.homes(), id="the list"),
        ],
    )
    def test_who_counts(self, unselected: Machines, figures: Callable[[StickyNode], Iterable[object]]) -> None:
        assert list(figures(unselected.plugin)).count(None) >= 200 // 64

    @pytest.mark.parametrize(
        "work",
        [
            pytest.param(lambda it: it._unusable_homes.look(Steps(asyncio.sleep)), id="who looks at homes"),
            pytest.param(lambda it: it._reconciler._ownership.all(), id="who seals them"),
            pytest.param(lambda it: it._reconciler._remembered.note(), id="who remembers them"),
        ],
    )
    async def test_who_writes(
        self, unselected: Machines, work: Callable[[StickyNode], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turns = counted_turns(monkeypatch)

        await work(unselected.plugin)

        assert (len(turns) >= 200, {HOME: "n2"}) == (True, written(unselected, "c-7"))


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

    async def test_two_pods_of_one_claim_make_one_home(self) -> None:
        machines = machines_of()
        add_claim(machines)
        first, second, other = user(machines), user(machines, "two"), user(machines, "three", "logs")
        machines.reserve(first, "n2")

        assert ["n2"] == machines.allowed(second)
        add_claim(machines, "logs")
        depends = [machines.plugin.depends_on(*it) for it in ((second, first), (other, first))]
        assert [True, False] == depends


class TestWhose:
    async def test_what_a_person_wrote_is_sealed_on_claims_that_keep_homes_alone(self) -> None:
        machines = machines_of()
        add_claim(machines, home="n2")
        add_claim(machines, "other", keeps=False, home="n2")

        await machines.repair()

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
        await machines.repair()
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
        await machines.repair()
        machines.gone(PERSISTENT_VOLUME_CLAIMS, "data")
        add_claim(machines, uid="new", keeps=False)

        await machines.repair()
        assert {} == written(machines)

        add_claim(machines, uid="new", version="2")
        await machines.repair()
        assert "n2" == written(machines)[HOME]


class TestStates:
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


@pytest.mark.parametrize(
    ("keys", "per_ordinal", "found"),
    [
        pytest.param([], True, [], id="none"),
        pytest.param([HOME, f"{HOME}.1"], False, [""], id="no ordinals are told apart"),
        pytest.param([f"{HOME}.1"], False, [], id="only one of an ordinal, where none are told apart"),
        pytest.param([f"{HOME}.10", f"{HOME}.9", HOME], True, ["", "9", "10"], id="by number"),
        pytest.param([f"{HOME}.1-10", f"{HOME}.1-9"], True, ["1-9", "1-10"], id="of groups"),
        pytest.param([f"{HOME}-pod.1", f"{HOME}ly", f"{HOME}.1"], True, ["1"], id="annotations of other names"),
    ],
)
def test_the_homes_that_stand_there(keys: list[str], per_ordinal: bool, found: list[str]) -> None:
    assert found == slots(dict.fromkeys(keys, "n1"), HOME, per_ordinal=per_ordinal)


def test_there_are_not_more_than_a_bound() -> None:
    annotations = {f"{HOME}.{number}": "n1" for number in reversed(range(MOST_SLOTS + 100))}

    assert list(map(str, range(MOST_SLOTS))) == slots(annotations, HOME, per_ordinal=True)


NODE: Final = make_node("n1", zone="z1")
POD: Final = launcher(more=mounting("data"))


def affinity(*terms: JsonObject, **more: Any) -> JsonObject:
    """``more`` of a volume."""
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}, **more}


class World:
    """A picture with claims and volumes."""

    def __init__(self, *found: JsonObject) -> None:
        self.cluster = Cluster()
        self.volumes = BoundVolumes(self.cluster)
        self.add(*found)

    def add(self, *found: JsonObject) -> None:
        for it in found:
            kind = PERSISTENT_VOLUMES if it["kind"] == "PersistentVolume" else PERSISTENT_VOLUME_CLAIMS
            self.cluster.others.upsert(kind, kind.decode(encoded(it)))

    def unreached(self, pod: Any = POD, node: Any = NODE) -> str:
        found = self.volumes.unreached(pod, node)
        return "" if found is None else found.volume


BOUND: Final = claim_object(volume="pv-1")
AWAY: Final = volume_object(claim="data", zone="z2")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([BOUND, AWAY], "pv-1", id="its zone is another"),
        pytest.param([BOUND, volume_object(claim="data", zone="z1")], "", id="its zone is the node's"),
        pytest.param([BOUND, volume_object(claim="data")], "", id="it can be used from anywhere"),
        pytest.param([BOUND], "", id="there is no such volume"),
        pytest.param([AWAY], "", id="there is no such claim"),
        pytest.param([claim_object(), AWAY], "", id="the claim is not bound"),
        pytest.param(
            [claim_object(more={"volumeName": "pv-1"}), AWAY], "", id="the claim names it, and is not bound to it yet"
        ),
        pytest.param(
            [
                BOUND,
                volume_object(claim="data", more=affinity(term(expression("zone", "In", "z2")), term()) | {"csi": {}}),
            ],
            "pv-1",
            id="a term that matches nothing",
        ),
        pytest.param(
            [BOUND, volume_object(claim="data", more=affinity(term(fields=[expression("metadata.name", "In", "n9")])))],
            "",
            id="kube-scheduler does not look at names",
        ),
    ],
)
def test_a_bound_volume_has_its_place(objects: list[JsonObject], expected: str) -> None:
    assert expected == World(*objects).unreached()


def test_the_first_of_several_is_told() -> None:
    claims = [claim_object(it, volume=f"pv-{it}") for it in "abc"]
    volumes = [
        volume_object(f"pv-{it}", claim=it, zone=zone) for it, zone in zip("abc", ("z1", "z3", "z2"), strict=True)
    ]
    world = World(*claims, *volumes)

    assert "pv-b" == world.unreached(launcher(more=mounting("a", "b", "c")))
    assert "pv-c" == world.unreached(launcher(more=mounting("c", "b", "a")))
    assert "" == world.unreached(launcher(more=mounting("a")))


def test_the_claim_of_an_ephemeral_volume_is_that_of_its_pod() -> None:
    world = World(claim_object("launcher-scratch", volume="pv-1"), volume_object(claim="launcher-scratch", zone="z2"))

    assert "pv-1" == world.unreached(launcher(more=mounting(ephemeral=["scratch"])))
    assert "" == world.unreached(launcher("other", more=mounting(ephemeral=["scratch"])))


@pytest.mark.parametrize(
    ("kind", "key"), [(PERSISTENT_VOLUME_CLAIMS, ("default", "data")), (PERSISTENT_VOLUMES, ("", "pv-1"))]
)
def test_of_what_cannot_be_read_nothing_is_said(kind: Any, key: tuple[str, str]) -> None:
    world = World(BOUND, AWAY)
    world.cluster.mark_unreadable(kind, key, "too long")

    assert "" == world.unreached()


def test_of_a_pod_with_too_many_volumes_nothing_is_said() -> None:
    names = ["data", *map(str, range(MOST_VOLUMES))]

    assert "" == World(BOUND, AWAY).unreached(launcher(more=mounting(*names)))


@pytest.mark.parametrize(
    ("csi", "in_tree", "expected"),
    [
        pytest.param("z1", "z2", "", id="by the CSI driver's word"),
        pytest.param("z2", "z1", "", id="by the in-tree driver's word"),
        pytest.param("z2", "z2", "pv-1", id="by neither"),
    ],
)
def test_a_volume_of_an_in_tree_driver_may_be_one_of_a_csi_driver(csi: str, in_tree: str, expected: str) -> None:
    """Which of both a node says for itself, and nobody asks it here."""
    labels = {"topology.gke.io/zone": csi, "topology.kubernetes.io/zone": in_tree}
    requirements = [expression("topology.kubernetes.io/zone", "In", "z1")]
    world = World(
        BOUND,
        volume_object(
            claim="data",
            more=affinity(term(*requirements), gcePersistentDisk={"pdName": "disk"}),
            labels={"topology.kubernetes.io/zone": "z1"},
        ),
    )

    assert expected == world.unreached(node=make_node("n1", labels=labels))


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([term(expression(HOSTNAME, "In", "n2"))], "pv-1", id="the host of another"),
        pytest.param([term(expression(HOSTNAME, "In", "n2", "n1.example.com"))], "", id="its own among others"),
        pytest.param([term(expression(HOSTNAME, "In", "n1"))], "", id="its name without the domain"),
        pytest.param([term(expression("zone", "In", "z2"))], "", id="a zone: nobody knows where it was"),
        pytest.param(
            [term(expression(HOSTNAME, "In", "n2")), term(expression("zone", "In", "z2"))], "", id="one of two terms"
        ),
        pytest.param(
            [term(expression(HOSTNAME, "In", "n2"), expression("zone", "In", "z2"))], "pv-1", id="both in one term"
        ),
        pytest.param([term(expression(HOSTNAME, "NotIn", "n1"))], "", id="what it must not be"),
        pytest.param([], "", id="no term, which no node meets"),
    ],
)
def test_of_a_node_that_is_gone_the_name_is_all_there_is(terms: list[JsonObject], expected: str) -> None:
    world = World(BOUND, volume_object(claim="data", more=affinity(*terms, csi={"driver": "d", "volumeHandle": "h"})))

    assert expected == world.unreached(node="n1.example.com")


def test_a_label_may_be_longer_than_the_name() -> None:
    more = affinity(term(expression(HOSTNAME, "In", "n1.example.com")), csi={"driver": "d", "volumeHandle": "h"})
    world = World(BOUND, volume_object(claim="data", more=more))

    assert ["", "pv-1"] == [world.unreached(node=it) for it in ("n1", "n2")]


def test_matchers_are_bounded() -> None:
    world = World()
    for number in range(4200):
        claim, volume = f"c{number}", f"pv-{number}"
        world.add(claim_object(claim, volume=volume), volume_object(volume, claim=claim, zone=f"z{number}"))
        world.unreached(launcher(more=mounting(claim)))

    assert 0 < len(world.volumes._matchers) <= 4096


EARLY, LATE = "2026-11-21T10:00:00Z", "2026-11-21T10:00:05Z"
Story = Callable[[Machines], None]


def pods(*found: Pod) -> Story:
    def there(machines: Machines) -> None:
        for pod in found:
            machines.cluster.upsert_pod(pod)

    return there


def claims(name: str = "launcher", home: str = "n1", **fields: Unpack[PodFields]) -> Pod:
    """A bound pod that says it brings a home, on that node unless another is given."""
    given: PodFields = {"node": home, "annotations": {HOME: home}, **fields}
    return launcher(name, **given)


MIGRATED = claims("target", "n2", created=LATE)
SOURCE = launcher("source", node="n1", created=EARLY)


@pytest.mark.parametrize(
    ("runs_on", "there", "home"),
    [
        pytest.param("", pods(claims()), "n1", id="the only pod of a machine that is not ready yet"),
        pytest.param("n1", pods(claims()), "n1", id="the pod where the machine runs"),
        pytest.param("", pods(claims(home="n2", node="n1")), "", id="it says another node than it is on"),
        pytest.param("", pods(claims(home="any text", node="n1")), "", id="it says what is no node"),
        pytest.param("", pods(claims(home="n9")), "", id="it is on a node that does not exist"),
        pytest.param("", pods(claims(scheduler="somebody")), "", id="it is not ours"),
        pytest.param("n2", pods(claims()), "", id="the machine runs elsewhere"),
        pytest.param("", pods(claims(created=EARLY), launcher("new", created=LATE)), "", id="a newer one waits"),
        pytest.param("", pods(claims(created=LATE), launcher("old", created=EARLY)), "n1", id="it is the newest"),
        pytest.param("n1", pods(SOURCE, MIGRATED), "", id="a migration that is not done"),
        pytest.param("n2", pods(SOURCE, MIGRATED), "n2", id="a migration that is done"),
        pytest.param(
            "n1",
            pods(claims(created=EARLY), launcher("new", node="n2", created=LATE)),
            "n1",
            id="a newer one is elsewhere",
        ),
        pytest.param(
            "n1",
            pods(claims(created=EARLY), launcher("new", node="n1", created=LATE)),
            "",
            id="a newer one is on the same node",
        ),
        pytest.param(
            "",
            pods(claims(created=EARLY), launcher("new", node="n2", created=LATE, phase="Succeeded")),
            "n1",
            id="a newer one has finished",
        ),
        pytest.param(
            "",
            pods(claims(created=EARLY), launcher("new", created=LATE, namespace="shop")),
            "n1",
            id="a newer one is of another namespace",
        ),
        pytest.param("", pods(claims(created=EARLY), claims("twin", "n2", created=EARLY)), "n2", id="a draw"),
        pytest.param("", pods(claims(owner={**reference(INSTANCE), "uid": "earlier"})), "", id="of an earlier boot"),
        pytest.param("", pods(claims(owner={**reference(INSTANCE), "controller": False})), "", id="not controlled"),
        pytest.param("", pods(claims(namespace="shop")), "", id="from another namespace"),
        pytest.param("", pods(claims(owner=reference(MACHINE))), "", id="of the machine, past its instance"),
    ],
)
async def test_a_home_is_taken_from_the_active_pod(runs_on: str, there: Story, home: str) -> None:
    machines = Machines()
    machines.machine(runs_on=runs_on)
    there(machines)

    await machines.repair()

    assert home == machines.annotations().get(HOME, "")


async def test_any_pod_that_a_custom_resource_controls_may_make_its_home() -> None:
    machines = Machines({"owners": [{"apiVersion": "example.com/v1", "kind": "Database"}]})
    machines.add(DATABASE)
    machines.cluster.upsert_pod(make_pod("newer", created=LATE, owner=reference(DATABASE)))

    await machines.bind(make_pod("any", created=EARLY, owner=reference(DATABASE)), "n1")

    assert own_home("n1", "uid-default-any", DATABASE) == machines.annotations(DATABASE)


class TestBind:
    """What a pod with a forged owner can do through a bind of its own."""

    async def test_a_pod_that_a_newer_one_overtakes_on_its_way_makes_no_home(self) -> None:
        machines = Machines()
        machines.machine()
        machines.reserve(launcher(created=EARLY), "n1")
        machines.cluster.upsert_pod(launcher("newer", created=LATE))
        state = CycleState()
        await machines.plugin.pre_bind(state, launcher(created=EARLY), "n1")

        await machines.plugin.post_bind(state, launcher(created=EARLY), "n1")

        assert (ALL, {}) == (machines.allowed(launcher("newer")), machines.annotations())

    async def test_a_pod_elsewhere_makes_the_home_once_the_machine_is_there(self) -> None:
        machines = Machines()
        machines.machine(runs_on="n1")

        assert {HOME: "n2"} == await machines.bind(launcher("other", created=LATE), "n2")
        await machines.repair()
        assert {} == machines.annotations()

        machines.runs(node="n2")
        await machines.repair()
        assert own_home("n2", "uid-default-other") == machines.annotations()

    @pytest.mark.parametrize(
        ("home", "forged", "binding"),
        [
            pytest.param("n1", {HOME: "n1", HOME_AFTER: "x"}, {HOME: ""}, id="at home: we say nothing of our own"),
            pytest.param("", {HOME: "n9"}, {HOME: "n1"}, id="a first bind overwrites the node"),
            pytest.param("", {HOME_AFTER: "x"}, {HOME: "n1", HOME_AFTER: ""}, id="and what was before it"),
            pytest.param("", {HOME_REPLACES: "n1"}, {HOME: "n1", HOME_REPLACES: ""}, id="and what it replaces"),
        ],
    )
    async def test_what_was_written_on_the_pod_before_does_not_survive(
        self, home: str, forged: dict[str, str], binding: dict[str, str]
    ) -> None:
        machines = Machines()
        machines.machine(**({"home": home} if home else {}))

        assert binding == await machines.bind(launcher(annotations=forged), "n1")

    async def test_nor_on_a_pod_of_nobody(self) -> None:
        assert {HOME: ""} == await Machines().bind(make_pod(annotations={HOME: "n1"}), "n1")

    async def test_a_forged_word_cannot_undo_a_release(self) -> None:
        machines = Machines()
        machines.machine(home="n1", home_pod="first")
        await machines.bind(launcher(annotations={HOME: "n1", HOME_AFTER: "first"}), "n1")
        machines.change(MACHINE, {HOME_POD: "first"})

        await machines.repair()

        assert {HOME_POD: "first"} == machines.annotations()


JOBS: JsonObject = {"owners": [{"apiVersion": "batch/v1", "kind": "Job", "perOrdinal": True}]}
JOB = owner_kind("batch/v1", "Job")
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.mark.parametrize(
    ("labels", "allowed"),
    [
        pytest.param({INDEX: "3"}, ["n3"], id="index 3"),
        pytest.param({INDEX: "1"}, ALL, id="an index without a home"),
        pytest.param({INDEX: "x"}, ALL, id="no number"),
        pytest.param({INDEX: ""}, ALL, id="none"),
        pytest.param({}, ALL, id="a job that is not indexed"),
    ],
)
def test_each_index_of_a_job_has_a_home_of_its_own(labels: dict[str, str], allowed: list[str]) -> None:
    """Whatever its pods are called: a pod that failed has a successor of another name."""
    machines = Machines(JOBS)
    machines.add(JOB, **{"home.3": "n3", "home": "n2"})

    for name in ("db-3-x7k2p", "db-3-9wq4z"):
        assert allowed == machines.allowed(launcher(name, labels=labels, owner=reference(JOB)))


GROUPS: JsonObject = {
    "owners": [
        {
            "apiVersion": LWS.api_version,
            "kind": LWS.kind,
            "perOrdinal": True,
            "through": [{"apiVersion": "apps/v1", "kind": "StatefulSet"}],
        }
    ]
}
LEADER: JsonObject = {**controller("Pod", "db-0", api_version="v1"), "uid": "uid-leader"}


def member(name: str, group: str = "0", worker: str = "0", *, of: str = "db", owned_by: str = "db") -> Pod:
    """A pod of a LeaderWorkerSet, in one of its StatefulSets."""
    own = {"name": of, "group-index": group, "worker-index": worker}
    labels = {f"leaderworkerset.sigs.k8s.io/{key}": value for key, value in own.items()}
    return launcher(name, labels=labels, owner=reference(SET, owned_by))


def test_a_worker_waits_for_its_leader_worker_set() -> None:
    machines = Machines(GROUPS)
    machines.add_owned(SET, LEADER, "db-0")
    worker = member("db-0-2", worker="2", owned_by="db-0")

    assert [(LWS, "default", "db")] == list(machines.plugin.required_objects(worker))
    assert REASON_OWNER_UNKNOWN == machines.allowed(worker)


SIDE_BY_SIDE: JsonObject = {"owners": [SETS, *GROUPS["owners"]]}


@pytest.mark.parametrize(
    ("pod", "kept_by"),
    [
        pytest.param(member("db-0"), "LeaderWorkerSet default/db, ordinal 0-0", id="a leader"),
        pytest.param(
            member("db-0-2", worker="2", owned_by="db-0"), "LeaderWorkerSet default/db, ordinal 0-2", id="a worker"
        ),
        pytest.param(
            launcher("mail-1", owner=reference(SET, "mail")), "StatefulSet default/mail, ordinal 1", id="bare"
        ),
        pytest.param(
            launcher("pg-1", owner=reference(SET, "pg")), "StatefulSet default/pg, ordinal 1", id="of another kind's"
        ),
        pytest.param(launcher("db-0", owner=reference(SET)), None, id="in a group's set, and not of the group"),
        pytest.param(member("db-0-3", worker="2", owned_by="db-0"), None, id="a name that is another's"),
        pytest.param(member("db-1", worker="0"), None, id="a leader that is another's"),
        pytest.param(member("db-0", group="x"), None, id="a group that is none"),
        pytest.param(member("db-0-2", worker="x", owned_by="db-0"), None, id="a worker that is none"),
        pytest.param(member("db-0-2", worker="2", owned_by="evil"), None, id="in somebody else's set"),
        pytest.param(member("mail-0-2", worker="2", of="mail", owned_by="db-0"), None, id="another's leader"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_longest_way_that_leads_somewhere_counts(pod: Pod, kept_by: str | None, *, turned: bool) -> None:
    """A set that a LeaderWorkerSet owns keeps nothing itself, in whatever order the rules are."""
    rules = SIDE_BY_SIDE["owners"][:: -1 if turned else 1]
    machines = Machines({"owners": rules})
    machines.add(LWS)
    machines.add_owned(SET, reference(LWS))
    machines.add_owned(SET, LEADER, "db-0")
    machines.add_owned(SET, LEADER, "evil")
    machines.add(SET, "mail")
    machines.add_owned(SET, reference(DATABASE, "pg"), "pg")

    found = Owners(StickyNodeArgs.model_validate({"owners": rules}).owners, machines.cluster).of(pod)

    assert (kept_by is None, kept_by or "None") == (found is None, str(found))


def test_a_set_whose_group_is_not_there_yet_keeps_nothing_meanwhile() -> None:
    machines = Machines(SIDE_BY_SIDE)
    machines.add_owned(SET, reference(LWS))
    leader = member("db-0")

    assert [(LWS, "default", "db")] == list(machines.plugin.required_objects(leader))
    assert REASON_OWNER_UNKNOWN == machines.allowed(leader)
    machines.add(LWS, **{"home.0-0": "n3"})
    assert ["n3"] == machines.allowed(leader)


async def test_a_home_is_written_where_the_longest_way_leads() -> None:
    machines = Machines(SIDE_BY_SIDE)
    machines.add(LWS)
    machines.add_owned(SET, reference(LWS))
    machines.add(SET, "mail")

    await machines.bind(member("db-0"), "n2")
    await machines.bind(launcher("mail-0", owner=reference(SET, "mail")), "n3")

    assert "n2" == machines.annotations(LWS)["homeport.dev/home.0-0"]
    assert {} == machines.annotations(SET)
    assert "n3" == machines.annotations(SET, "mail")["homeport.dev/home.0"]


def test_an_object_on_the_way_to_another_may_keep_homes_itself() -> None:
    """A machine without a VirtualMachine: its instance keeps the home, as long as it is there."""
    instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    machine = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "through": [instance]}
    machines = Machines({"owners": [instance, machine]})
    machines.machine(home="n2")
    machines.add(INSTANCE, "alone", home="n3")

    assert ["n2"] == machines.allowed(launcher())
    assert ["n3"] == machines.allowed(launcher(machine="alone"))


def test_a_leader_worker_set_may_be_on_the_way_to_another_owner() -> None:
    through = [{"apiVersion": "apps/v1", "kind": "StatefulSet"}, {"apiVersion": LWS.api_version, "kind": LWS.kind}]
    machines = Machines({"owners": [{"apiVersion": "example.com/v1", "kind": "Database", "through": through}]})
    machines.add(DATABASE, "fleet", home="n2")
    machines.add_owned(LWS, reference(DATABASE, "fleet"))
    machines.add_owned(SET, LEADER, "db-0")

    assert ["n2"] == machines.allowed(member("db-0-1", worker="1", owned_by="db-0"))
