"""Machines and stateful sets live while Homeport is killed: what people and KubeVirt do to them, and the truth of it.

The test plays people, kubelet and KubeVirt's controllers, in their order of writes. In each wave every kind of thing
happens to somebody. Whoever is down was at rest before, so that one answer is right for each home at the end:

    before the start   made anew under the name · cloned · home moved, or released, by a person
    at the start       boots for the first time, or comes home · runs already, without a home · its home is cordoned:
                       it waits, or (soft) starts elsewhere
    while it runs      migrates, and it succeeds or fails · home moved, or released, by a person
    afterwards         deleted for good, and remembered

In a namespace of their own there are as many Homes of nobody as are kept, and some more come in each wave.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.chaos import homes
from tests.chaos.arena import Arena
from tests.chaos.checker import HOME, Json
from tests.chaos.homes import Place, Rest
from tests.controlplane import objects

POLICY: Final = "homeport.dev/policy"
LABEL: Final = "vm.kubevirt.io/name"
NEW: Final = 2
ORDINALS: Final = 3
REST_SECONDS: Final = 45.0
"""How long it may take until what is written of homes is right; kills go on meanwhile."""

CORDON_SECONDS: Final = 15.0
"""How long a cordon lasts at most: until everybody who lives there has a clock, and who may start elsewhere has."""

LONGEST_STORY: Final = 80
"""Maximum number of lines of evidence for a home that is wrong at rest: the latest ones."""

_POLL_SECONDS: Final = 0.05
_MOVED: Final = 2

CROWDED: Final = "crowded"
MOST_OF_NOBODY: Final = 1000
"""Homes of a namespace whose machines are not there that are kept: the last ones that were written."""

_MORE: Final = 3


@dataclass(slots=True)
class Machine:
    """A VirtualMachine, running or not. ``pod``: the one in which it runs or is to run."""

    found: Json
    is_soft: bool = False
    pod: str = ""
    node: str = ""

    @property
    def name(self) -> str:
        return str(self.found["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.found["metadata"]["uid"])

    @property
    def place(self) -> Place:
        return Place("VirtualMachine", f"default/{self.name}")


class Lives:
    """Wave after wave. ``truth``: the home of each, also of who is gone · ``people``: the revisions of their words.

    ``stories``: the history of each home that was wrong at rest.
    """

    def __init__(self, arena: Arena, schedulers: Sequence[str], seed: int) -> None:
        """``schedulers``: the first is a kube-scheduler, which knows affinity; the others are asked in turn."""
        self.truth: dict[Place, str] = {}
        self.people: set[int] = set()
        self.unrest: list[Rest] = []
        self.stories: dict[str, list[str]] = {}
        self.strayed: list[str] = []
        self._arena = arena
        self._client = arena.plane.client
        self._schedulers = schedulers
        self._chance = random.Random(seed)
        self._known: dict[str, Machine] = {}
        self._sets: dict[str, Json] = {}
        self._wave = 0
        self._made = 0
        self._booting: list[Machine] = []
        self._adopted: list[Machine] = []
        self._cordoned: list[str] = []
        self._of_nobody: list[str] = []

    # before the start

    def prepare(self) -> None:
        """Everybody is down and at rest; afterwards it is known who is to run, and where who lives."""
        self._wave += 1
        self._adopted, self._cordoned = [], []
        known = list(self._known.values())
        self._chance.shuffle(known)
        at_home = [it for it in known if self.truth[it.place]]
        away = [next(every, None) for every in map(iter, _parted(at_home))]
        waiting = [it for it in away if it is not None]
        some = iter([it for it in known if it not in waiting])
        again, back, moved, released = (list(_take(some, count)) for count in (1, 1, 1, 1))
        clones = [self._clone(it) for it in at_home[:1]]
        for it in again:
            self._make_anew(it)
        for it in moved:
            self._give(it.place, self._elsewhere(self.truth[it.place]))
        for it in released:
            self._give(it.place, "")
        self._prepare_sets()
        self._crowd()
        new = [self._make(is_soft=number % 2 == 1) for number in range(NEW if known else 4 * NEW)]
        self._booting = [*again, *back, *moved, *released, *waiting, *clones, *new]
        self.rest()
        self._cordon(waiting)

    def _make(self, *, is_soft: bool = False, copied: Json | None = None) -> Machine:
        self._made += 1
        wanted = objects.virtual_machine(f"vm-{self._made}")
        wanted["metadata"]["annotations"] = {**(copied or {}), **({POLICY: "soft"} if is_soft else {})}
        machine = Machine(self._client.create(wanted), is_soft)
        self._known[machine.name] = machine
        self.truth[machine.place] = ""
        return machine

    def _clone(self, machine: Machine) -> Machine:
        copied = homes.annotations_of(self._client.get("VirtualMachine", machine.name))
        return self._make(is_soft=machine.is_soft, copied=dict(copied))

    def _make_anew(self, machine: Machine) -> None:
        """With nothing of what stood on it but its policy."""
        self._client.delete("VirtualMachine", machine.name)
        wanted = objects.virtual_machine(machine.name)
        wanted["metadata"]["annotations"] = {POLICY: "soft"} if machine.is_soft else {}
        machine.found = self._client.create(wanted)

    def _prepare_sets(self) -> None:
        """One is made anew under its name; of the other a person moves one home and releases another."""
        for number, name in enumerate(("set-a", "set-b")):
            if name not in self._sets:
                self._sets[name] = self._client.create(objects.stateful_set(name, replicas=ORDINALS))
                self.truth |= dict.fromkeys(_places(name), "")
            elif self._wave % 2 == number:
                self._client.delete("StatefulSet", name)
                self._sets[name] = self._client.create(objects.stateful_set(name, replicas=ORDINALS))
            else:
                first, second, *_ = _places(name)
                self._give(first, self._elsewhere(self.truth[first]))
                self._give(second, "")

    def _crowd(self) -> None:
        """As if so many machines had been deleted there, one after the other."""
        if not self._of_nobody:
            self._client.create(objects.namespace(CROWDED))
        more = MOST_OF_NOBODY if not self._of_nobody else _MORE
        numbers = range(len(self._of_nobody), len(self._of_nobody) + more)
        self._arena.each(self._client.create, map(_of_nobody, numbers))
        self._of_nobody += [f"gone-{number}" for number in numbers]

    def _give(self, place: Place, home: str) -> None:
        """A person's word; empty releases. What is so already is nobody's write."""
        if self.truth[place] == home:
            return
        key = f"{HOME}.{place.slot}" if place.slot else HOME
        name = place.name.partition("/")[2]
        found = self._client.patch(place.kind, name, {"metadata": {"annotations": {key: home or None}}})
        self.people.add(int(found["metadata"]["resourceVersion"]))
        self.truth[place] = home

    def _elsewhere(self, *nodes: str) -> str:
        return self._chance.choice([it for it in self._arena.nodes if it not in nodes])

    # the start

    def pods(self) -> list[Json]:
        """Of all who are to run; those that ran before Homeport came do so already."""
        for _ in range(2):
            self._adopt(self._make())
        launchers = [self._launcher(it) for it in self._booting]
        members = [self._member(it, slot) for it in self._sets.values() for slot in range(ORDINALS)]
        return [*launchers, *members]

    def _adopt(self, machine: Machine) -> None:
        instance, node = self._instance(machine), self._chance.choice(self._arena.nodes)
        pod = objects.launcher_pod(instance, suffix="ran", scheduler_name=self._schedulers[0], node_name=node)
        machine.pod = self._client.create(pod)["metadata"]["name"]
        self._runs(machine, node)
        self._adopted.append(machine)
        self.truth[machine.place] = node

    def _instance(self, machine: Machine) -> Json:
        return self._client.create(objects.virtual_machine_instance(machine.name, machine.uid))

    def _launcher(self, machine: Machine) -> Json:
        scheduler = self._schedulers[(self._wave + len(machine.name)) % len(self._schedulers)]
        pod = objects.launcher_pod(self._instance(machine), suffix=f"w{self._wave}", scheduler_name=scheduler)
        machine.pod = pod["metadata"]["name"]
        return pod

    def _member(self, stateful_set: Json, slot: int) -> Json:
        scheduler = self._schedulers[(self._wave + slot) % len(self._schedulers)]
        owners = [objects.owner_reference(stateful_set)]
        return objects.pod(f"{stateful_set['metadata']['name']}-{slot}", scheduler_name=scheduler, owners=owners)

    @property
    def names(self) -> list[str]:
        """Of the machines of this wave."""
        return [it.name for it in (*self._booting, *self._adopted)]

    def _cordon(self, machines: Iterable[Machine]) -> None:
        for node in dict.fromkeys(self.truth[it.place] for it in machines):
            self._client.patch("Node", node, {"spec": {"unschedulable": True}})
            self._cordoned.append(node)

    def uncordon(self) -> None:
        """Once all clocks of those who live there run, and who may start elsewhere has."""
        if self._cordoned:
            self._until(lambda: self._has_left() and not self._unrest().every, CORDON_SECONDS)
        for node in self._cordoned:
            self._client.patch("Node", node, {"spec": {"unschedulable": None}})

    def _has_left(self) -> bool:
        """Whether every soft machine whose home is cordoned has a node; then it is taken down where it is."""
        bound = self._arena.observer.bound()
        for it in self._booting:
            if it.is_soft and self.truth[it.place] in self._cordoned:
                if it.pod not in bound:
                    return False
                self.truth[it.place] = bound[it.pod]
        return all(self._take_down(place, pod, bound) for place, pod in self._first())

    def _first(self) -> Iterator[tuple[Place, str]]:
        """Who has no home, and the pod that makes it."""
        of_machines = ((it.place, it.pod) for it in self._booting)
        of_sets = ((it, f"{name}-{it.slot}") for name in self._sets for it in _places(name))
        yield from ((place, pod) for place, pod in (*of_machines, *of_sets) if not self.truth[place])

    def _take_down(self, place: Place, pod: str, bound: dict[str, str]) -> bool:
        self.truth[place] = bound.get(pod, "")
        return pod in bound

    def started(self) -> None:
        """All pods are bound: it is noted where everybody is, and KubeVirt says so."""
        bound = self._arena.observer.bound()
        for place, pod in list(self._first()):
            self._take_down(place, pod, bound)
        for it in self._booting:
            self._note(it.place, it.pod, bound, is_soft=it.is_soft)
        for name in self._sets:
            for place in _places(name):
                self._note(place, f"{name}-{place.slot}", bound)
        self._arena.each(lambda it: self._runs(it, bound[it.pod]), [it for it in self._booting if it.pod in bound])

    def _note(self, place: Place, pod: str, bound: dict[str, str], *, is_soft: bool = False) -> None:
        """A soft machine starts elsewhere also where a bind at home has failed."""
        node = bound.get(pod)
        if node is not None and node != self.truth[place]:
            if is_soft:
                self.truth[place] = node
            else:
                self.strayed.append(f"{pod} of {place} on {node}, not {self.truth[place]}")

    def _runs(self, machine: Machine, node: str) -> None:
        machine.node = node
        self._client.patch_status("VirtualMachineInstance", machine.name, {"nodeName": node})

    # while they run

    def meanwhile(self, patience: float) -> None:
        """Some migrate, and people move and release the homes of others. ``patience``: seconds to wait for Events."""
        at_home = [it for it in self._booting if it.node and it.node == self.truth[it.place]]
        self._chance.shuffle(at_home)
        some = iter(at_home)
        moving, staying = list(_take(some, _MOVED)), list(_take(some, 1))
        self._arena.each(lambda it: self._migrate(it, succeeds=it in moving), [*moving, *staying])
        for it in _take(some, 1):
            self._move_to_and_fro(it, patience)
        for it in _take(some, 1):
            self._give(it.place, "")
        self.rest()

    def _move_to_and_fro(self, machine: Machine, patience: float) -> None:
        """By a person who cannot decide: the Event of it is repeated."""
        other = self._elsewhere(machine.node)
        for node, times in ((other, 1), (machine.node, 1), (other, 2)):
            self._give(machine.place, node)
            self._until(partial(self._is_told, machine, node, times), patience)

    def _is_told(self, machine: Machine, node: str, times: int) -> bool:
        """Whether one Event says so often that the home was moved there."""
        found = self._client.list("Event", "default", fields=f"involvedObject.name={machine.name},reason=HomeMoved")
        counts = ((it.get("series") or {}).get("count", 1) for it in found if it["related"]["name"] == node)
        return max(counts, default=0) >= times

    def _migrate(self, machine: Machine, *, succeeds: bool) -> None:
        """The target pod keeps away from the source, which is on the node of the machine."""
        uid = f"migration-{self._wave}-{machine.name}"
        instance = self._client.get("VirtualMachineInstance", machine.name)
        terms = [{"topologyKey": objects.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {LABEL: machine.name}}}]
        target = objects.launcher_pod(
            instance,
            suffix=f"t{self._wave}",
            labels={homes.TARGET: uid},
            scheduler_name=self._schedulers[0],
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        )
        name = self._client.create(target)["metadata"]["name"]
        if not self._until(lambda: name in self._arena.observer.bound(), REST_SECONDS):
            self.strayed.append(f"{name} got no node")
            return
        source, node = machine.node, self._arena.observer.bound()[name]
        told = {"sourceNode": source, "targetNode": node, "migrationUid": uid}
        self._tell(machine, {"migrationState": told})
        if succeeds:
            self._runs(machine, node)
            self.truth[machine.place] = node
            self._tell(machine, {"migrationState": {**told, "completed": True}})
            self._arena.delete([machine.pod])
        else:
            self._tell(machine, {"migrationState": {**told, "completed": True, "failed": True}})
            self._arena.delete([name])

    def _tell(self, machine: Machine, status: Json) -> None:
        self._client.patch_status("VirtualMachineInstance", machine.name, status)

    # afterwards

    def shut_down(self) -> None:
        """All pods are gone. What remains of a machine that is down is its VirtualMachine, and of one what was kept."""
        running = [*self._booting, *self._adopted]
        self._arena.each(lambda it: self._client.delete("VirtualMachineInstance", it.name), running)
        for it in running:
            it.pod = it.node = ""
        gone = next((it for it in running if self.truth[it.place]), None)
        if gone is not None:
            self._client.delete("VirtualMachine", gone.name)
            del self._known[gone.name]

    def rest(self) -> None:
        """Wait until all that is written is right; what is not in time is noted, and taken for what it is."""
        if not self._until(lambda: not self._unrest().every, REST_SECONDS):
            rest = self._unrest()
            self.unrest.append(rest)
            history = self._arena.observer.history()
            self.stories |= {f"{it}": homes.story(history, it)[-LONGEST_STORY:] for it in rest.wrong}

    def _unrest(self) -> Rest:
        present = self._arena.observer.present()
        rest = homes.judge_rest(present, self.truth)
        there = {it.found["metadata"]["name"] for it in present if it.kind == "Home" and _is_crowded(it.found)}
        first, last = self._of_nobody[:-MOST_OF_NOBODY], self._of_nobody[-MOST_OF_NOBODY:]
        rest.lost += [f"Home {CROWDED}/{it}, one of the last" for it in last if it not in there]
        rest.marks += [f"Home {CROWDED}/{it} is not forgotten" for it in first if it in there]
        return rest

    def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def _take(some: Iterator[Machine], count: int) -> Iterator[Machine]:
    for _, it in zip(range(count), some, strict=False):
        yield it


def _parted(machines: Sequence[Machine]) -> tuple[list[Machine], list[Machine]]:
    """Those that wait for their homes, and those that are soft."""
    return [it for it in machines if not it.is_soft], [it for it in machines if it.is_soft]


def _places(name: str) -> list[Place]:
    return [Place("StatefulSet", f"default/{name}", str(slot)) for slot in range(ORDINALS)]


def _of_nobody(number: int) -> Json:
    """Each is younger than those before."""
    name = f"gone-{number}"
    owner = {"apiVersion": objects.KUBEVIRT_API, "kind": "VirtualMachine", "name": name, "uid": name}
    since = f"2020-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    return {
        "apiVersion": "homeport.dev/v1alpha1",
        "kind": "Home",
        "metadata": {"name": name, "namespace": CROWDED},
        "spec": {"owner": owner, "node": "somewhere", "since": since},
    }


def _is_crowded(home: Json) -> bool:
    return bool(home["metadata"]["namespace"] == CROWDED)
