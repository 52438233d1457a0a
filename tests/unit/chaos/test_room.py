"""The checker of room is fed nodes that hold too much, and nodes that only look it."""

from itertools import count
from typing import Any

import pytest

from tests.chaos.checker import Change, Event, Json, UnsupportedHistory
from tests.chaos.room import REQUIRED, RoomJudgement, judge_room, quantity, slim
from tests.controlplane import objects

HOST = objects.HOSTNAME_LABEL
ZONE = objects.ZONE_LABEL


class Story:
    """Writes a history of four-CPU nodes, a revision a line."""

    def __init__(self, *nodes: str) -> None:
        self.events: list[Event] = []
        self._revisions = count(1)
        for name in nodes or ("a", "b"):
            self.tell("Node", "ADDED", objects.node(name, zone="z", cpu="4", pods="3"))

    def tell(self, kind: Any, change: Change, found: Json) -> None:
        named = {"namespace": "default", "uid": f"uid-{found['metadata']['name']}", **found["metadata"]}
        made = {**found, "metadata": {**named, "resourceVersion": str(next(self._revisions))}}
        self.events.append(Event(kind, change, made))

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


class TestResources:
    def test_the_binding_that_goes_beyond_is_the_one_that_is_told(self) -> None:
        story = Story()
        for name, cpu in (("one", "3"), ("two", "1"), ("three", "1m")):
            story.binds(asks(name, cpu), "a")

        assert [("three", "cpu: 4.001 of 4")] == story.found()
        assert (3, {"a"}) == (story.judged().binds, story.judged().nodes)

    def test_pods_count_whatever_they_ask_for(self) -> None:
        story = Story()
        for name in ("one", "two", "three", "four"):
            story.binds(asks(name), "a")

        assert [("four", "pods: 4 of 3")] == story.found()

    def test_a_node_that_is_overbooked_may_take_who_asks_for_none_of_it(self) -> None:
        story = Story()
        story.binds(asks("one", "5"), "a")
        story.binds(asks("two"), "a")

        assert [("one", "cpu: 5 of 4")] == story.found()

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


class TestPorts:
    @pytest.mark.parametrize(
        ("second", "expected"),
        [
            pytest.param(listens("two", 80), "TCP/80, also of default/one", id="the same"),
            pytest.param(listens("two", 80, "10.0.0.1"), "TCP/80, also of default/one", id="one address of all"),
            pytest.param(listens("two", 81), "", id="another port"),
            pytest.param(listens("two", 80, protocol="UDP"), "", id="another protocol"),
        ],
    )
    def test_taken_twice(self, second: Json, expected: str) -> None:
        story = Story()
        story.binds(listens("one", 80), "a")
        story.binds(second, "a")

        assert ([("two", expected)] if expected else []) == story.found()

    def test_two_addresses_share_a_port(self) -> None:
        story = Story()
        story.binds(listens("one", 80, "10.0.0.1"), "a")
        story.binds(listens("two", 80, "10.0.0.2"), "a")

        assert [] == story.found()

    def test_so_do_two_nodes(self) -> None:
        story = Story()
        story.binds(listens("one", 80), "a")
        story.binds(listens("two", 80), "b")

        assert [] == story.found()


class TestApart:
    def test_one_that_keeps_away_comes_near(self) -> None:
        story = Story()
        story.binds(objects.pod("guest", labels={"app": "guest"}), "a")
        story.binds(keeps_away("hermit", "hermit", of="guest"), "a")

        assert [("hermit", "default/guest on a")] == story.found()

    def test_somebody_comes_near_one_that_keeps_away(self) -> None:
        story = Story()
        story.binds(keeps_away("hermit", "hermit", of="guest"), "a")
        story.binds(objects.pod("guest", labels={"app": "guest"}), "a")

        assert [("guest", "default/hermit on a")] == story.found()

    def test_two_that_keep_away_from_each_other_are_told_once(self) -> None:
        story = Story()
        story.binds(keeps_away("one", "web"), "a")
        story.binds(keeps_away("two", "web"), "a")

        assert [("two", "default/one on a")] == story.found()

    def test_a_domain_may_be_many_nodes_or_one(self) -> None:
        near, far = Story(), Story()
        for story, key in ((near, ZONE), (far, HOST)):
            story.binds(keeps_away("one", "web", key=key), "a")
            story.binds(keeps_away("two", "web", key=key), "b")

        assert ([("two", "default/one on a")], []) == (near.found(), far.found())

    def test_other_namespaces_are_not_meant(self) -> None:
        story = Story()
        pod = keeps_away("two", "web")
        story.binds(keeps_away("one", "web"), "a")
        story.binds({**pod, "metadata": {**pod["metadata"], "namespace": "shop"}}, "a")

        assert [] == story.found()

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
