"""The checker of room is fed nodes that hold too much, and nodes that only look it."""

from typing import Any

import pytest

from tests.chaos.checker import Json, UnsupportedHistory
from tests.chaos.room import REQUIRED, RoomJudgement, judge_room, quantity, slim
from tests.controlplane import objects
from tests.unit.chaos.history import History

HOST = objects.HOSTNAME_LABEL
ZONE = objects.ZONE_LABEL


class Story(History):
    """Writes a history of four-CPU nodes, a revision a line."""

    def __init__(self, *nodes: str) -> None:
        super().__init__()
        for name in nodes or ("a", "b"):
            self.tell("Node", "ADDED", objects.node(name, zone="z", cpu="4", pods="3"))

    def binds(self, pod: Json, node: str) -> Json:
        """The pod waits, and is bound."""
        self.tell("Pod", "ADDED", pod)
        placed: Json = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        self.tell("Pod", "MODIFIED", placed)
        return placed

    def judged(self) -> RoomJudgement:
        return judge_room(self.events)

    def found(self) -> list[tuple[str, str]]:
        """Which bindings broke what."""
        return [(it.pod.removeprefix("default/"), it.what) for it in self.judged().every]


def asks(name: str, cpu: str = "", **fields: Any) -> Json:
    return objects.pod(name, requests={"cpu": cpu} if cpu else None, **fields)


def listens(name: str, port: int, address: str = "", protocol: str = "TCP") -> Json:
    pod = objects.pod(name)
    pod["spec"]["containers"][0]["ports"] = [{"hostPort": port, "hostIP": address, "protocol": protocol}]
    return pod


def keeps_away(name: str, app: str, *, of: str = "", key: str = HOST, **more: Any) -> Json:
    selector = {"matchLabels": {"app": of or app}}
    term = {"topologyKey": key, "labelSelector": selector, **more}
    return objects.pod(name, labels={"app": app}, affinity={"podAntiAffinity": {REQUIRED: [term]}})


def in_namespace(pod: Json, namespace: str) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}


GUEST = objects.pod("guest", labels={"app": "guest"})
HERMIT = keeps_away("hermit", "hermit", of="guest")
ONE = listens("one", 80)


@pytest.mark.parametrize(
    ("binds", "broken"),
    [
        pytest.param(
            [(asks("one", "3"), "a"), (asks("two", "1"), "a"), (asks("three", "1m"), "a")],
            ("three", "cpu: 4.001 of 4"),
            id="the binding that goes beyond",
        ),
        pytest.param(
            [(asks(name), "a") for name in ("one", "two", "three", "four")],
            ("four", "pods: 4 of 3"),
            id="pods count whatever they ask for",
        ),
        pytest.param(
            [(asks("one", "5"), "a"), (asks("two"), "a")],
            ("one", "cpu: 5 of 4"),
            id="an overbooked node may take a pod that asks for nothing",
        ),
        pytest.param(
            [(ONE, "a"), (listens("two", 80), "a")], ("two", "TCP/80, also of default/one"), id="a port twice"
        ),
        pytest.param(
            [(ONE, "a"), (listens("two", 80, "10.0.0.1"), "a")],
            ("two", "TCP/80, also of default/one"),
            id="a port on one address of all",
        ),
        pytest.param([(ONE, "a"), (listens("two", 81), "a")], None, id="another port"),
        pytest.param([(ONE, "a"), (listens("two", 80, protocol="UDP"), "a")], None, id="another protocol"),
        pytest.param(
            [(listens("one", 80, "10.0.0.1"), "a"), (listens("two", 80, "10.0.0.2"), "a")], None, id="two addresses"
        ),
        pytest.param([(ONE, "a"), (listens("two", 80), "b")], None, id="two nodes"),
        pytest.param(
            [(GUEST, "a"), (HERMIT, "a")], ("hermit", "default/guest on a"), id="one that keeps away comes near"
        ),
        pytest.param(
            [(HERMIT, "a"), (GUEST, "a")], ("guest", "default/hermit on a"), id="another comes near one that keeps away"
        ),
        pytest.param(
            [(keeps_away("one", "web"), "a"), (keeps_away("two", "web"), "a")],
            ("two", "default/one on a"),
            id="two that keep away from each other are told once",
        ),
        pytest.param(
            [(keeps_away(name, "web", key=ZONE), node) for name, node in (("one", "a"), ("two", "b"))],
            ("two", "default/one on a"),
            id="a domain of many nodes",
        ),
        pytest.param(
            [(keeps_away(name, "web"), node) for name, node in (("one", "a"), ("two", "b"))], None, id="of one node"
        ),
        pytest.param(
            [(keeps_away("one", "web"), "a"), (in_namespace(keeps_away("two", "web"), "shop"), "a")],
            None,
            id="another namespace",
        ),
    ],
)
def test_the_binding_that_breaks_something_is_the_one_that_is_told(
    binds: list[tuple[Json, str]], broken: tuple[str, str] | None
) -> None:
    story = Story()
    for pod, node in binds:
        story.binds(pod, node)

    assert ([] if broken is None else [broken]) == story.found()
    assert len(binds) == story.judged().binds


class TestResources:
    def test_who_went_away_or_has_finished_leaves_room(self) -> None:
        story = Story()
        gone, done = story.binds(asks("gone", "3"), "a"), story.binds(asks("done", "1"), "a")
        story.tell("Pod", "DELETED", gone)
        story.tell("Pod", "MODIFIED", {**done, "status": {"phase": "Succeeded"}})
        story.binds(asks("next", "4"), "a")

        assert [] == story.found()

    def test_a_terminating_pod_still_takes_its_room(self) -> None:
        story = Story()
        pod = story.binds(asks("ends", "3"), "a")
        ends = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
        story.tell("Pod", "MODIFIED", ends)
        story.binds(asks("next", "2"), "a")

        assert [("next", "cpu: 5 of 4")] == story.found()

    @pytest.mark.parametrize(
        "spec", [{"overhead": {"cpu": "1"}}, {"initContainers": [{"name": "i"}]}, {"resources": {"requests": {}}}]
    )
    def test_what_is_not_judged_is_refused(self, spec: Json) -> None:
        story = Story()
        story.binds(asks("odd", **{**spec, "resources": {"limits": {}}} if "resources" in spec else spec), "a")

        with pytest.raises(UnsupportedHistory, match=f"default/odd has {next(iter(spec))}"):
            story.judged()

    @pytest.mark.parametrize(("text", "expected"), [("4", 4), ("500m", 0.5), ("2Ki", 2048), ("1.5k", 1500)])
    def test_quantities(self, text: str, expected: float) -> None:
        assert expected == float(quantity(text))


class TestApart:
    def test_a_term_that_is_not_judged_is_refused(self) -> None:
        story = Story()
        story.binds(objects.pod("one"), "a")
        story.binds(keeps_away("two", "web", namespaceSelector={}), "a")

        with pytest.raises(UnsupportedHistory, match="default/two has an anti-affinity term with namespaceSelector"):
            story.judged()


def test_what_is_kept_of_a_pods_containers_is_what_is_judged() -> None:
    pod = listens("one", 80)
    pod["spec"]["containers"].append({"name": "idle", "image": "pause"})

    assert {"containers": [{"ports": pod["spec"]["containers"][0]["ports"]}]} == slim(pod["spec"])
    assert {} == slim(objects.pod("two")["spec"])
