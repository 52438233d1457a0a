"""The judge of homes is fed what may be and what may not, written by people and by Homeport."""

from __future__ import annotations

import pytest

from tests.chaos import homes
from tests.chaos.checker import HOME, Change, Json
from tests.chaos.homes import HEARD, MACHINE, OWNER, REPLACES, SINCE, HomesJudgement, Place, Rest
from tests.controlplane import objects
from tests.unit.chaos.history import History

DB = Place("VirtualMachine", "default/db")
MEMBER = Place("StatefulSet", "default/web", "3")


class Story(History):
    """Writes a history, a revision a line: what stands on the machine ``db``, or on another, and what happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.people: set[int] = set()
        for name in ("n1", "n2", "n3"):
            self.node(name)

    def node(self, name: str, *, cordoned: bool = False) -> None:
        found = objects.node(name, unschedulable=cordoned)
        found["status"]["nodeInfo"] = {"systemUUID": f"machine-of-{name}"}
        self.tell("Node", "MODIFIED", found)

    def machine(self, name: str = "db", uid: str = "", **said: str) -> None:
        self._machine("ADDED", name, uid, said)

    def homeport(self, name: str = "db", uid: str = "", **said: str) -> int:
        return self._machine("MODIFIED", name, uid, said)

    def _machine(self, change: Change, name: str, uid: str, said: dict[str, str]) -> int:
        uid = uid or f"uid-{name}"
        self.tell("VirtualMachine", change, objects.virtual_machine(name), uid=uid, annotations=_said(said))
        return len(self.events)

    def person(self, name: str = "db", **said: str) -> None:
        self.people.add(self.homeport(name, **said))

    def instance(self, name: str = "db", node: str = "", source: str = "", uid: str = "") -> None:
        found = objects.virtual_machine_instance(name, uid or f"uid-{name}")
        moved = {"migrationState": {"sourceNode": source, "targetNode": node}} if source else {}
        found["status"] = {"nodeName": node, **moved}
        self.tell("VirtualMachineInstance", "MODIFIED", found, uid=f"uid-vmi-{uid or name}")

    def bound(self, node: str, name: str = "db", replaces: str = "", uid: str = "", *, is_target: bool = False) -> None:
        reference = objects.owner_reference_to(
            objects.KUBEVIRT_API, "VirtualMachineInstance", name, f"uid-vmi-{uid or name}"
        )
        pod = objects.pod(f"{name}-{len(self.events)}", owners=[reference], node_name=node)
        said = {HOME: node, **({REPLACES: replaces} if replaces else {})}
        self.tell("Pod", "MODIFIED", pod, annotations=said, labels={homes.TARGET: "uid"} if is_target else {})

    def remembers(self, node: str, name: str = "db", uid: str = "", change: Change = "MODIFIED", **more: str) -> None:
        owner = {
            "apiVersion": objects.KUBEVIRT_API,
            "kind": "VirtualMachine",
            "name": name,
            "uid": uid or f"uid-{name}",
        }
        spec = {"owner": owner, "node": node, "machine": f"machine-of-{node}", **more}
        self.tell("Home", change, {"metadata": {"name": f"home-of-{name}"}, "spec": spec})

    def judged(self) -> HomesJudgement:
        return homes.judge(self.events, self.people)

    def lives(self, node: str = "n1") -> None:
        """A machine that started there for the first time, and is remembered."""
        self.machine()
        self.instance()
        self.bound(node)
        self.homeport(**at(node))
        self.remembers(node)


def _said(said: dict[str, str]) -> dict[str, str]:
    keys = {"home": HOME, "heard": HEARD, "owner": OWNER, "machine": MACHINE, "since": SINCE}
    return {keys[word]: it for word, it in said.items() if it}


def at(node: str, name: str = "db", uid: str = "", **more: str) -> dict[str, str]:
    """What Homeport writes of a home."""
    marks = {"owner": f"{uid or f'uid-{name}'} {node}", "machine": f"machine-of-{node}"}
    return {"home": node, "heard": "pod", **marks, **more}


def nothing_wrong(judgement: HomesJudgement) -> bool:
    return not (judgement.lost or judgement.invented or judgement.marks or judgement.clocks)


def test_every_reason_for_a_home_is_known() -> None:
    story = Story()
    story.lives("n1")
    story.instance(node="n2", source="n1")
    story.homeport(**at("n2"))
    story.bound("n3", replaces="n2")
    story.homeport(**at("n3"))
    story.remembers("n3")
    story.tell("VirtualMachine", "DELETED", objects.virtual_machine("db"))
    story.machine(uid="uid-again")
    story.homeport(uid="uid-again", **at("n3", uid="uid-again"))
    story.machine("ran")
    story.instance("ran", node="n2")
    story.homeport("ran", **at("n2", "ran"))

    judged = story.judged()
    assert nothing_wrong(judged)
    assert {"bind": 2, "migration": 1, "memory": 1, "adoption": 1} == judged.by


@pytest.mark.parametrize(
    ("replaces", "is_right"), [pytest.param("n1", True, id="the home"), pytest.param("n3", False, id="another home")]
)
def test_a_machine_may_migrate_from_where_a_bind_would_have_made_its_home(replaces: str, is_right: bool) -> None:
    story = Story()
    story.lives("n1")
    story.bound("n2", replaces=replaces)
    story.instance(node="n3", source="n2")
    story.homeport(**at("n3"))
    assert is_right == (not story.judged().invented)


def test_a_story_is_what_happened_to_one_place_without_repetitions() -> None:
    story = Story()
    story.lives("n1")
    story.lives("n1")
    story.machine("other")
    lines = [line.split()[2:4] for line in homes.story(story.events, DB)]
    owner, instance = ["VirtualMachine", "ADDED"], ["VirtualMachineInstance", "MODIFIED"]
    home, pod = ["VirtualMachine", "MODIFIED"], ["Pod", "MODIFIED"]
    assert [owner, instance, pod, home, ["Home", "MODIFIED"], owner, pod, home] == lines


def test_what_people_say_needs_no_reason_and_ends_those_of_before() -> None:
    """The pod's word is not heard any more, nor does the machine's move count, nor is it adopted."""
    story = Story()
    story.lives("n1")
    story.bound("n2", replaces="n1")
    story.instance(node="n3", source="n1")
    story.person(heard="pod")
    released = story.judged()
    story.homeport(**at("n2"))
    story.homeport(**at("n3"))

    assert nothing_wrong(released)
    assert 2 == len(story.judged().invented)


@pytest.mark.parametrize(
    ("is_target", "replaces"),
    [pytest.param(True, "n1", id="a migration's target"), pytest.param(False, "n3", id="in place of another home")],
)
def test_not_every_pod_makes_a_home(is_target: bool, replaces: str) -> None:
    story = Story()
    story.lives("n1")
    story.bound("n2", replaces=replaces, is_target=is_target)
    revision = story.homeport(**at("n2"))

    assert [f"{DB}: n2 in place of n1 at {revision}"] == story.judged().invented


def test_a_home_that_homeport_takes_away_is_lost_and_a_copy_is_not() -> None:
    story = Story()
    story.lives("n1")
    story.machine("clone", **at("n1"))
    story.homeport("clone")
    fine = story.judged()
    revision = story.homeport(heard="pod")

    assert nothing_wrong(fine)
    assert [f"{DB}: n1 was taken away at {revision}"] == story.judged().lost


def test_a_home_is_remembered_until_a_person_releases_it() -> None:
    story = Story()
    story.lives("n1")
    story.person(heard="pod")
    story.remembers("n1", change="DELETED")
    released = story.judged()
    story.bound("n2")
    story.homeport(**at("n2"))
    story.remembers("n2")
    story.person(**at("n3"))
    story.remembers("n2", change="DELETED")

    assert nothing_wrong(released)
    assert [f"Home of {DB}: forgotten at {len(story.events)}"] == story.judged().lost


def test_what_is_remembered_was_a_home() -> None:
    story = Story()
    story.lives("n1")
    story.remembers("n2")
    story.remembers("n1", machine="another")

    judged = story.judged()
    assert [f"Home of {DB}: n2 at {len(story.events) - 1}"] == judged.invented
    assert [f"Home of {DB}: machine 'another' beside n1 at {len(story.events)}"] == judged.marks


@pytest.mark.parametrize(
    "wrong", [{"owner": "another n1"}, {"owner": "uid-db n2"}, {"machine": "machine-of-n2"}], ids=str
)
def test_marks_beside_a_home_are_its_own(wrong: dict[str, str]) -> None:
    story = Story()
    story.machine()
    story.instance()
    story.bound("n1")
    story.homeport(**{**at("n1"), **wrong})

    assert 1 == len(story.judged().marks)


def test_a_clock_runs_while_the_node_is_cordoned_and_stays_as_it_is() -> None:
    story = Story()
    story.lives("n1")
    story.node("n1", cordoned=True)
    story.homeport(**at("n1", since="away 2026-01-01T00:00:00Z n1"))
    story.homeport(**at("n1", since="leaving 2026-01-01T00:00:00Z n1"))
    story.node("n1")
    story.homeport(**at("n1"))
    story.node("n1", cordoned=True)
    story.homeport(**at("n1", since="away 2026-01-01T01:00:00Z n1"))

    assert nothing_wrong(story.judged())


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("", id="lost"),
        pytest.param("away 2026-01-01T00:00:09Z n1", id="begun anew"),
        pytest.param("away 2026-01-01T00:00:00Z n2", id="of another node"),
    ],
)
def test_a_clock_that_is_lost_or_moved_is_found(then: str) -> None:
    story = Story()
    story.lives("n1")
    story.node("n1", cordoned=True)
    story.homeport(**at("n1", since="away 2026-01-01T00:00:00Z n1"))
    story.homeport(**at("n1", since=then))

    assert 1 == len(story.judged().clocks)


def test_a_clock_of_a_home_that_was_always_usable_is_found() -> None:
    story = Story()
    story.lives("n1")
    story.homeport(**at("n1", since="away 2026-01-01T00:00:00Z n1"))

    assert 1 == len(story.judged().clocks)


def member(home: str, **more: str) -> Json:
    found = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "namespace": "default"}}
    return {**found, "metadata": {**found["metadata"], "annotations": {f"{HOME}.3": home, **more}}}  # type: ignore[dict-item]


def test_ordinals_have_homes_of_their_own() -> None:
    story = Story()
    story.tell("StatefulSet", "ADDED", {"metadata": {"name": "web"}})
    owner = objects.owner_reference_to("apps/v1", "StatefulSet", "web", "uid-web")
    for ordinal, node in (("1", "n1"), ("3", "n2")):
        pod = objects.pod(f"web-{ordinal}", owners=[owner], node_name=node)
        story.tell("Pod", "MODIFIED", pod, annotations={HOME: node})
    story.tell("StatefulSet", "MODIFIED", member("n1"))

    assert [f"{MEMBER}: n1 in place of none at {len(story.events)}"] == story.judged().invented


# at rest


def test_at_rest_all_that_is_written_is_as_it_should_be() -> None:
    story = Story()
    story.lives("n1")

    assert Rest() == homes.judge_rest(story.events, {DB: "n1"})


def test_at_rest_what_is_not_there_is_lost_and_what_should_not_be_is_invented() -> None:
    story = Story()
    story.lives("n1")

    assert Rest(invented=[f"{DB}: n1, not n2", f"Home of {DB}: n1, not n2"]) == homes.judge_rest(
        story.events, {DB: "n2"}
    )
    assert Rest(invented=[f"Home of {DB}: n1, of nobody"]) == homes.judge_rest(story.events, {})
    other = Place("VirtualMachine", "default/other")
    assert [f"Home of {other}: none, not n1"] == homes.judge_rest(story.events, {DB: "n1", other: "n1"}).lost


def test_at_rest_of_an_owner_that_is_gone_what_is_remembered_counts() -> None:
    story = Story()
    story.lives("n1")
    there = [it for it in story.events if it.kind != "VirtualMachine"]

    assert Rest() == homes.judge_rest(there, {DB: "n1"})


@pytest.mark.parametrize(
    "wrong", [{"owner": ""}, {"owner": "another n1"}, {"machine": ""}, {"heard": ""}, {"since": "away x n1"}], ids=str
)
def test_at_rest_what_stands_beside_a_home_is_judged(wrong: dict[str, str]) -> None:
    story = Story()
    story.lives("n1")
    story.homeport(**{**at("n1"), **wrong})
    there = [it for it in story.events if it.kind != "VirtualMachine"] + story.events[-1:]

    assert 1 == len(homes.judge_rest(there, {DB: "n1"}).marks)


def test_at_rest_a_home_that_is_cordoned_has_a_clock() -> None:
    story = Story()
    story.lives("n1")
    story.node("n1", cordoned=True)

    assert [f"{DB}: away, and since ''"] == homes.judge_rest(story.events, {DB: "n1"}).marks
