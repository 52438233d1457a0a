"""Judges what is written of homes, beside the truth of who lives where. As ``checker``, it imports none of the product.

Judged are all writes to owners (VirtualMachines, StatefulSets) and to Homes, in the order in which the API server
accepted them. Which of them were people's is told by their revisions; all others are Homeport's, and each home it wrote
needs a reason that was there before:

    bind        a pod of the owner was bound there since the last word of a person, in place of the home that was there,
                and says so
    migration   the machine moved there from the home, or from where a bind would have made it, since the last word of
                a person
    adoption    the machine runs there, and nobody has ever said anything of its home
    memory      the Home of an earlier object of that name says so

A home without a reason is invented; one that Homeport took away is lost, unless it was a copy of another object's.
Homes that people make, in namespaces without owners, are not judged here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.checker import HOME, Event, Json, Kind, ordered

HEARD: Final = f"{HOME}-pod"
OWNER: Final = f"{HOME}-owner"
MACHINE: Final = f"{HOME}-machine"
SINCE: Final = f"{HOME}-since"
REPLACES: Final = f"{HOME}-replaces"
TARGET: Final = "kubevirt.io/migrationJobUID"
NAMESPACE: Final = "default"
"""Where all owners are."""

OWNERS: Final[tuple[Kind, ...]] = ("VirtualMachine", "StatefulSet")
PER_ORDINAL: Final = "StatefulSet"
_OF_A_HOME: Final = (HEARD, OWNER, MACHINE, SINCE, HOME)


@dataclass(frozen=True, slots=True)
class Place:
    """Whose home it is, whatever object has the name. ``name``: with its namespace · ``slot``: of a StatefulSet."""

    kind: str
    name: str
    slot: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}{f', ordinal {self.slot}' if self.slot else ''}"


@dataclass(frozen=True, slots=True)
class Written:
    """What stands on an owner of one home; empty for what does not."""

    home: str = ""
    heard: str = ""
    owner: str = ""
    machine: str = ""
    since: str = ""

    @classmethod
    def on(cls, found: Json, slot: str) -> Written:
        there = annotations_of(found)
        suffix = f".{slot}" if slot else ""
        return cls(*(there.get(f"{key}{suffix}", "") for key in (HOME, HEARD, OWNER, MACHINE, SINCE)))


@dataclass(slots=True)
class HomesJudgement:
    """``by``: how often homes were written, by their reason. ``marks``: what stands beside a home and is wrong.

    ``clocks``: times since when a home is not usable that were lost, moved, or written of one that was usable.
    """

    by: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    clocks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Bound:
    revision: int
    node: str
    replaces: str


@dataclass(frozen=True, slots=True)
class _Ran:
    revision: int
    node: str
    source: str


_Key = tuple[str, str]
"""UID of an owner, slot."""


@dataclass(slots=True)
class _State:
    """At one revision. ``words``: of the last word of a person; ``cordoned``: since when, and until when it was."""

    owners: dict[str, Json] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    words: dict[_Key, int] = field(default_factory=dict)
    released: set[_Key] = field(default_factory=set)
    had: defaultdict[_Key, set[str]] = field(default_factory=lambda: defaultdict(set))
    bound: defaultdict[_Key, dict[str, _Bound]] = field(default_factory=lambda: defaultdict(dict))
    ran: defaultdict[str, list[_Ran]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[Place, Json] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    cordoned: dict[str, int] = field(default_factory=dict)
    times: dict[tuple[_Key, str, int], str] = field(default_factory=dict)
    cordons: set[str] = field(default_factory=set)


def judge(history: Iterable[Event], people: Collection[int]) -> HomesJudgement:
    """``people``: the revisions of what people wrote on owners that were there."""
    state, judgement = _State(), HomesJudgement()
    for event in ordered(history):
        if event.kind == "Node":
            _node(state, event)
        elif event.kind == "Pod":
            _pod(state, event)
        elif event.kind == "VirtualMachineInstance":
            _instance(state, event)
        elif event.kind in OWNERS:
            _owner(state, event, people, judgement)
        elif event.kind == "Home" and event.found["metadata"]["namespace"] == NAMESPACE:
            _memory(state, event, judgement)
    return judgement


def _node(state: _State, event: Event) -> None:
    name = event.found["metadata"]["name"]
    state.machines[name] = machine_of(event.found)
    if event.change != "DELETED" and event.found["spec"].get("unschedulable"):
        state.cordoned.setdefault(name, event.revision)
        state.cordons.add(name)
    else:
        state.cordoned.pop(name, None)


def _pod(state: _State, event: Event) -> None:
    pod = event.found
    node, key = pod["spec"].get("nodeName"), _key_of(state, pod)
    said = annotations_of(pod)
    if node and node == said.get(HOME) and key is not None and TARGET not in (pod["metadata"].get("labels") or {}):
        state.bound[key].setdefault(event.uid, _Bound(event.revision, node, said.get(REPLACES, "")))


def _key_of(state: _State, pod: Json) -> _Key | None:
    for it in pod["metadata"].get("ownerReferences") or ():
        if it["kind"] == "VirtualMachineInstance":
            keeper = state.instances.get(it["uid"])
            return None if keeper is None else (keeper, "")
        if it["kind"] == PER_ORDINAL:
            return it["uid"], pod["metadata"]["name"].rpartition("-")[2]
    return None


def _instance(state: _State, event: Event) -> None:
    owners = event.found["metadata"].get("ownerReferences") or ()
    keeper = next((it["uid"] for it in owners), event.uid)
    state.instances[event.uid] = keeper
    status = event.found.get("status") or {}
    if node := status.get("nodeName"):
        moved = status.get("migrationState") or {}
        source = moved.get("sourceNode", "") if moved.get("targetNode") == node else ""
        known = state.ran[keeper]
        if not known or (known[-1].node, known[-1].source) != (node, source):
            known.append(_Ran(event.revision, node, source))


def _owner(state: _State, event: Event, people: Collection[int], judgement: HomesJudgement) -> None:
    uid, found = event.uid, event.found
    before = state.owners.pop(uid, None)
    if event.change == "DELETED":
        return
    state.owners[uid] = found
    for slot in sorted(slots(found) | (slots(before) if before else set())):
        was, now = Written() if before is None else Written.on(before, slot), Written.on(found, slot)
        if was == now:
            continue
        key, place = (uid, slot), Place(event.kind, name_of(found), slot)
        if before is None or event.revision in people:
            _word(state, event, key, was, now)
        else:
            _write(state, event, key, place, was, now, judgement)
        if now.home and not _is_foreign(now, uid):
            state.had[key].add(now.home)


def _word(state: _State, event: Event, key: _Key, was: Written, now: Written) -> None:
    if was.home != now.home and event.change != "ADDED":
        state.words[key] = event.revision
        (state.released.discard if now.home else state.released.add)(key)


def _write(
    state: _State, event: Event, key: _Key, place: Place, was: Written, now: Written, judgement: HomesJudgement
) -> None:
    is_copy = _is_foreign(was, key[0])
    if was.home and not now.home and not is_copy:
        judgement.lost.append(f"{place}: {was.home} was taken away at {event.revision}")
    elif now.home and now.home != was.home:
        reason = _reason(state, key, place, was, now)
        judgement.by[reason] += 1
        if not reason:
            judgement.invented.append(f"{place}: {now.home} in place of {was.home or 'none'} at {event.revision}")
    _marks(state, event, key, place, was, now, judgement)
    _clock(state, event, key, place, was, now, judgement)


def _reason(state: _State, key: _Key, place: Place, was: Written, now: Written) -> str:
    """Why Homeport may have written that home; empty for none."""
    word = state.words.get(key, 0)
    before = "" if _is_foreign(was, key[0]) else was.home
    memory = state.memory.get(place)
    kept = "" if memory is None or memory["spec"]["owner"].get("uid") == key[0] else memory["spec"]["node"]
    if any(it.node == now.home and it.revision > word and it.replaces in (before, kept) for it in _bound(state, key)):
        return "bind"
    ran = state.ran.get(key[0], [])
    sources = {before, *(it.node for it in _bound(state, key) if it.revision > word and it.replaces in (before, kept))}
    if any(it.node == now.home and it.source in sources - {""} and it.revision > word for it in ran):
        return "migration"
    if kept == now.home and not before and not word:
        return "memory"
    is_new = not before and not word and not was.heard and not state.had[key]
    return "adoption" if is_new and ran and ran[-1].node == now.home else ""


def _bound(state: _State, key: _Key) -> Collection[_Bound]:
    return state.bound.get(key, {}).values()


def _marks(
    state: _State, event: Event, key: _Key, place: Place, was: Written, now: Written, judgement: HomesJudgement
) -> None:
    """What Homeport wrote beside a home is about the home that stands there now, and about this very object."""
    right = (f"{key[0]} {now.home}",) if now.home else (f"{key[0]} -", "")
    if now.owner != was.owner and now.owner not in right:
        judgement.marks.append(f"{place}: owner {now.owner!r} beside {now.home or 'no home'} at {event.revision}")
    machine = state.machines.get(now.home, "")
    if now.machine != was.machine and now.machine != machine:
        judgement.marks.append(f"{place}: machine {now.machine!r} beside {now.home or 'no home'} at {event.revision}")


def _clock(
    state: _State, event: Event, key: _Key, place: Place, was: Written, now: Written, judgement: HomesJudgement
) -> None:
    """While a node is cordoned the time of a home there is written once, stays, and names the node."""
    if now.since == was.since:
        return
    since = state.cordoned.get(now.home)
    _, _, rest = now.since.partition(" ")
    time, _, node = rest.partition(" ")
    if not now.since:
        is_right = since is None or not was.since.endswith(f" {now.home}")
    else:
        is_right = node == now.home in state.cordons
        if since is not None:
            is_right &= state.times.setdefault((key, node, since), time) == time
    if not is_right:
        told = f"{place} at {now.home or 'no home'}, revision {event.revision}"
        judgement.clocks.append(f"{told}: {was.since!r} became {now.since!r}")


def _memory(state: _State, event: Event, judgement: HomesJudgement) -> None:
    """A Home says what stood on its owner once, and is there until a person releases the home."""
    place, owner = place_of(event.found), event.found["spec"]["owner"]
    key = (owner.get("uid", ""), owner.get("slot") or "")
    if event.change == "DELETED":
        del state.memory[place]
        if key not in state.released:
            judgement.lost.append(f"Home of {place}: forgotten at {event.revision}")
        return
    state.memory[place] = event.found
    node, machine = event.found["spec"]["node"], event.found["spec"].get("machine") or ""
    if node not in state.had[key]:
        judgement.invented.append(f"Home of {place}: {node} at {event.revision}")
    elif machine != state.machines.get(node, ""):
        judgement.marks.append(f"Home of {place}: machine {machine!r} beside {node} at {event.revision}")


# at rest


@dataclass(slots=True)
class Rest:
    """What differs from the truth once everything has come to rest. ``wrong``: the places whose home differs."""

    lost: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    wrong: set[Place] = field(default_factory=set, compare=False)

    @property
    def every(self) -> list[str]:
        return [*self.lost, *self.invented, *self.marks]


def judge_rest(present: Iterable[Event], truth: Mapping[Place, str]) -> Rest:
    """``truth``: the homes, empty for none, of all who may have one; also of owners that are gone and remembered.

    What stands beside them is judged, too: whose they are, on which machine, and since when one is not usable.
    """
    there = list(present)
    owners: dict[tuple[str, str], Json] = {(it.kind, name_of(it.found)): it.found for it in there if it.kind in OWNERS}
    kept_there = [it.found for it in there if it.kind == "Home" and it.found["metadata"]["namespace"] == NAMESPACE]
    memory = {place_of(it): it["spec"] for it in kept_there}
    nodes = {it.found["metadata"]["name"]: it.found for it in there if it.kind == "Node"}
    rest = Rest()
    for place, home in truth.items():
        found = owners.get((place.kind, place.name))
        if found is not None:
            written = Written.on(found, place.slot)
            if not _is_as(rest, f"{place}", home, written.home):
                rest.wrong.add(place)
            else:
                rest.marks += _wrong(place, found, written, nodes.get(home))
        kept = memory.pop(place, None)
        if _is_as(rest, f"Home of {place}", home, "" if kept is None else kept["node"]) and kept is not None:
            uid = kept["owner"].get("uid") if found is None else found["metadata"]["uid"]
            if (kept["owner"].get("uid"), kept.get("machine")) != (uid, machine_of(nodes[home])):
                rest.marks.append(f"Home of {place}: {kept}")
    rest.invented += [f"Home of {place}: {spec['node']}, of nobody" for place, spec in memory.items()]
    return rest


def _is_as(rest: Rest, whose: str, home: str, written: str) -> bool:
    if written != home:
        (rest.invented if written else rest.lost).append(f"{whose}: {written or 'none'}, not {home or 'none'}")
    return written == home


def _wrong(place: Place, found: Json, written: Written, node: Json | None) -> Iterator[str]:
    """What stands beside a home that is right."""
    uid = found["metadata"]["uid"]
    if node is None:
        if written.owner not in ("", f"{uid} -") or written.machine or written.since:
            yield f"{place}: beside no home {written}"
        return
    if (written.owner, written.machine) != (f"{uid} {written.home}", machine_of(node)) or not written.heard:
        yield f"{place}: beside its home {written}"
    is_away = bool(node["spec"].get("unschedulable"))
    if bool(written.since) != is_away or (is_away and not written.since.endswith(f" {written.home}")):
        yield f"{place}: {'away' if is_away else 'usable'}, and since {written.since!r}"


# evidence


def story(history: Iterable[Event], place: Place) -> list[str]:
    """Changes of a place's owner, instance, pods and Home: a line each, in the order in which they were accepted."""
    name = place.name.partition("/")[2]
    lines: list[str] = []
    before: dict[str, str] = {}
    for event in ordered(history):
        if not _concerns(event, place, name):
            continue
        now = _told_of(event)
        if before.get(event.uid) != now or event.change == "DELETED":
            lines.append(f"{event.received:.2f} {event.revision} {event.kind} {event.change} {now}")
        before[event.uid] = now
    return lines


def _concerns(event: Event, place: Place, name: str) -> bool:
    if event.kind == "Home":
        return place_of(event.found) == place
    if event.kind == "Pod":
        own = event.found["metadata"].get("ownerReferences") or ()
        return any(it["name"] == name for it in own) and (
            not place.slot or event.found["metadata"]["name"] == f"{name}-{place.slot}"
        )
    return event.kind in (place.kind, "VirtualMachineInstance") and name_of(event.found) == place.name


def _told_of(event: Event) -> str:
    found = event.found
    marks = {key.removeprefix(HOME): it for key, it in annotations_of(found).items() if key.startswith(HOME)}
    spec = {key: found["spec"][key] for key in ("node", "owner", "nodeName") if key in found["spec"]}
    status = {key: it for key, it in found.get("status", {}).items() if it and key in ("nodeName", "migrationState")}
    ends = "ends " if found["metadata"].get("deletionTimestamp") else ""
    return f"{ends}{found['metadata']['name']} {found['metadata']['uid'][:8]} {marks} {spec} {status}"


# what is read


def annotations_of(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def name_of(found: Json) -> str:
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def place_of(home: Json) -> Place:
    """Whose a Home is."""
    owner = home["spec"]["owner"]
    return Place(owner["kind"], f"{home['metadata']['namespace']}/{owner['name']}", owner.get("slot") or "")


def machine_of(node: Json) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("systemUUID", ""))


def slots(found: Json) -> set[str]:
    """Of which anything is written on an owner."""
    there = set()
    for key in annotations_of(found):
        for it in _OF_A_HOME:
            if key == it or key.startswith(f"{it}."):
                there.add(key[len(it) + 1 :])
                break
    return there


def _is_foreign(written: Written, uid: str) -> bool:
    """Whether it stands beside the UID of another object, as it did there."""
    whose, _, node = written.owner.partition(" ")
    return whose not in ("", uid) and (not written.home or node in ("", written.home))
