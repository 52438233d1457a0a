"""One whole cycle for other schedulers, and the answer to a person who asks why."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from app.config.profile import Profile
from app.config.settings import Settings
from app.framework.cycle_state import CycleState
from app.framework.points import PostFilterPlugin, PostFilterResult, PostFilterSteps, PreEnqueuePlugin
from app.framework.status import Code, Status, unschedulable
from app.kube.core_v1 import Pod
from app.runtime.guard import plugin_error
from app.runtime.profiles import has_point
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS
from app.server.admission import OUT_OF_TIME
from app.server.failures import MOST_CAUSES
from app.wire.cycle_v1 import MOST_NAMES, MOST_OBJECTS, MOST_PENDING, MOST_VALUES
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.contract import status_breaches
from tests.api.faulty import FAULT, FAULTY, faulty, with_faulty
from tests.api.service import Api, Reply, serving
from tests.api.small import FOREIGN, NEW, OURS, TOO_MANY, UNKNOWN_NODE, WEB, binding, by_name, filtered, saved
from tests.apiserver import kubeconfig
from tests.builders import ZONE, JsonObject, constraint, controller, node_object, pod_object
from tests.fakes import FromSpec, spec_of

SPREAD: Final = "PodTopologySpread"
SUCCESS: Final = {"code": "Success", "plugin": "", "reasons": []}
TOO_FULL: Final = {"code": "Unschedulable", "plugin": SPREAD, "reasons": [TOO_MANY]}
UNKNOWN: Final = {"code": "UnschedulableAndUnresolvable", "plugin": "", "reasons": [UNKNOWN_NODE]}
NOT_HOME: Final = {
    "code": "UnschedulableAndUnresolvable",
    "plugin": "StickyNode",
    "reasons": ["node(s) were not the pod's home"],
}
NO_OWNER: Final = {
    "code": "UnschedulableAndUnresolvable",
    "plugin": "StickyNode",
    "reasons": ["node(s) can't be judged before the pod's owner is known"],
}
BY_NAME: Final = {"namespace": "default", "name": "web-new"}
PLAIN: Final = pod_object("plain")
SOFT: Final = pod_object("web-soft", labels=WEB, spread=[constraint(app="web", soft=True)])
ALSO: Final = pod_object("web-also", labels=WEB, spread=[constraint(app="web")])
NOWHERE: Final = pod_object("nowhere", labels=WEB, spread=[constraint("rack", app="web")])
NO_LABEL: Final = f"{TOO_MANY} (missing required label)"


class Gates(FromSpec, PreEnqueuePlugin):
    """Keeps every pod out."""

    def pre_enqueue(self, pod: Pod) -> Status:
        return unschedulable("not before noon")


class MakesRoom(FromSpec, PostFilterPlugin):
    """Helps on the first node that rejects the pod."""

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        yield from ()
        return PostFilterResult(next(iter(rejected))), Status(Code.SUCCESS)


def with_plugin(name: str) -> tuple[Profile, ...]:
    """The default profile with this plugin too."""
    return (Profile.model_validate({"plugins": {"multiPoint": {"enabled": [{"name": name}]}}}),)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with serving(Settings(cluster=saved(tmp_path, ALSO), profiles=OURS, expected_bind_wait=0.1)) as api:
        yield api


async def ask(api: Api, path: str, body: JsonObject) -> tuple[int, Any]:
    response = await api.http.post(f"/api/v1/{path}", json=body)
    return response.status_code, response.json()


def cycled(
    node: str | None,
    statuses: Mapping[str, JsonObject],
    scores: Mapping[str, int] | None = None,
    pod: str = "default/web-new",
) -> JsonObject:
    """The answer of a cycle; ``scores`` are PodTopologySpread's, which has weight 2."""
    return {
        "pod": pod,
        "profile": "default-scheduler",
        "preset": "delegated",
        "preEnqueue": SUCCESS,
        "preFilter": SUCCESS,
        "filter": statuses,
        "scores": {name: {SPREAD: score} for name, score in (scores or {}).items()},
        "totals": {name: 2 * score for name, score in (scores or {}).items()},
        "node": node,
        "postFilter": None,
        "nominatedNode": None,
        "victims": None,
    }


def unscored(node: str, statuses: Mapping[str, JsonObject], feasible: tuple[str, ...]) -> JsonObject:
    """The same for a pod that no plugin scores."""
    found = cycled(node, statuses)
    return {**found, "scores": {name: {} for name in feasible}, "totals": dict.fromkeys(feasible, 0)}


class TestCycle:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            pytest.param(
                {"pod": SOFT, "nodes": ["n1", "n2"]},
                cycled("n2", {"n1": SUCCESS, "n2": SUCCESS}, {"n1": 0, "n2": 100}, "default/web-soft"),
                id="the best of some nodes, by its own words",
            ),
            pytest.param(
                {**BY_NAME, "nodes": ["n1", "n3"]},
                unscored("n3", {"n1": TOO_FULL, "n3": SUCCESS}, ("n3",)),
                id="a pod of the cluster, by name",
            ),
            pytest.param(
                {"pod": NEW, "nodes": ["n9", "n3", "n3"]},
                unscored("n3", {"n3": SUCCESS, "n9": UNKNOWN}, ("n3",)),
                id="nodes that nobody knows, and one named twice",
            ),
            pytest.param({"pod": NEW, "nodes": ["n1"]}, cycled(None, {"n1": TOO_FULL}), id="nothing fits"),
            pytest.param({"pod": NEW, "nodes": []}, cycled(None, {}), id="no nodes"),
        ],
    )
    async def test_a_cycle(self, api: Api, asked: JsonObject, expected: JsonObject) -> None:
        assert (200, expected) == await ask(api, "cycle", asked)

    async def test_a_plugin_that_rejects_the_pod_ends_it_for_every_node(self, api: Api) -> None:
        orphan = pod_object("db", owner=controller("VirtualMachineInstance", "db", api_version="kubevirt.io/v1"))

        _, found = await ask(api, "cycle", {"pod": orphan})

        nodes = dict.fromkeys(("n1", "n2", "n3"), NO_OWNER)
        assert {**cycled(None, nodes, pod="default/db"), "preFilter": NO_OWNER} == found

    async def test_which_profile_and_which_preset_answered(self, tmp_path: Path) -> None:
        """Whoever has no filters of its own wants to know that nobody asked the others."""
        one = Profile.model_validate({"schedulerName": "one", "preset": "complete"})
        rest = Profile.model_validate({"schedulerName": "*"})
        async with serving(Settings(cluster=saved(tmp_path), profiles=(one, rest))) as api:
            found = [(await ask(api, "cycle", {"pod": pod_object("a", scheduler=it)}))[1] for it in ("one", "two")]

        assert [("one", "complete"), ("*", "delegated")] == [(it["profile"], it["preset"]) for it in found]

    async def test_a_pod_that_is_gated(self, tmp_path: Path) -> None:
        settings = Settings(cluster=saved(tmp_path), profiles=with_plugin("Gates"))
        async with serving(settings, [*SHIPPED, spec_of(Gates)]) as api:
            found = await ask(api, "cycle", {"pod": NEW})

        gate = {"code": "Unschedulable", "plugin": "Gates", "reasons": ["not before noon"]}
        assert (200, {**cycled(None, {}), "preEnqueue": gate}) == found

    async def test_a_pod_that_can_be_helped(self, tmp_path: Path) -> None:
        settings = Settings(cluster=saved(tmp_path), profiles=with_plugin("MakesRoom"))
        async with serving(settings, [*SHIPPED, spec_of(MakesRoom)]) as api:
            found = await ask(api, "cycle", {"pod": NEW, "nodes": ["n1"]})

        helped = {"postFilter": SUCCESS, "nominatedNode": "n1"}
        assert (200, {**cycled(None, {"n1": TOO_FULL}), **helped}) == found

    async def test_who_would_have_to_go(self, tmp_path: Path) -> None:
        """Nobody goes: the answer says whom the caller would have to evict, and where."""
        settings = Settings(cluster=saved(tmp_path), profiles=with_plugin("DefaultPreemption"))
        urgent = {**NEW, "spec": {**NEW["spec"], "priority": 7}}
        async with serving(settings) as api:
            found = await ask(api, "cycle", {"pod": urgent, "nodes": ["n1"]})
            again = await ask(api, "cycle", {"pod": urgent, "nodes": ["n1"]})

        victims = {"pods": ["default/web-1"], "numPDBViolations": 0}
        helped = {"postFilter": SUCCESS, "nominatedNode": "n1", "victims": victims}
        assert (200, {**cycled(None, {"n1": TOO_FULL}), **helped}) == found == again

    async def test_the_pick_is_due_at_bind(self, api: Api) -> None:
        """A filter whose answer depends on where the pick went waits for its bind."""
        await ask(api, "cycle", {"pod": NEW, "nodes": ["n2"]})
        await api.post("filter", by_name(ALSO))

        assert 1 == await waits(api)

    async def test_the_pick_is_due_no_longer_once_it_is_bound(self, api: Api) -> None:
        await ask(api, "cycle", {"pod": NEW, "nodes": ["n2"]})
        await api.post("bind", binding(NEW, "n2"))
        after = await api.post("filter", by_name(ALSO))

        assert 0 == await waits(api)
        assert Reply(200, filtered(["n3"], {"n1": TOO_MANY, "n2": TOO_MANY}), "feasible") == after

    async def test_it_has_no_more_time_than_other_calls(self, tmp_path: Path) -> None:
        """It waits for a bind that is due until then, and then leaves its place to the next one."""
        settings = Settings(
            cluster=saved(tmp_path, ALSO), profiles=OURS, expected_bind_wait=1.0, http_timeout=0.5, max_in_flight=1
        )
        async with serving(settings) as api:
            await ask(api, "cycle", {"pod": NEW, "nodes": ["n2"]})
            late = await ask(api, "cycle", {"pod": ALSO})
            status, found = await ask(api, "cycle", {"pod": PLAIN, "nodes": ["n1"]})

        assert (503, OUT_OF_TIME) == (late[0], late[1]["message"])
        assert (200, "n1") == (status, found["node"])


class TestTheNextOne:
    """Of pods that wait the profile's queueSort says which is scheduled next: by priority, then by time."""

    NOON: Final = "2026-01-01T12:00:00Z"

    @staticmethod
    def urgent(name: str) -> JsonObject:
        return {**(found := pod_object(name)), "spec": {**found["spec"], "priority": 7}}

    async def test_who_came_first_is_next_however_it_is_sent(self, api: Api) -> None:
        late, early = {"pod": PLAIN, "queuedAt": self.NOON}, {**BY_NAME, "queuedAt": "2026-01-01T13:59:59+02:00"}

        for pods in ([late, early], [early, late]):
            found = await ask(api, "cycle", {"pods": pods, "nodes": ["n1", "n3"]})
            assert (200, unscored("n3", {"n1": TOO_FULL, "n3": SUCCESS}, ("n3",))) == found

    async def test_priority_comes_before_time(self, api: Api) -> None:
        pods = [{**BY_NAME, "queuedAt": 1}, {"pod": self.urgent("a"), "queuedAt": 2.5}]

        _, found = await ask(api, "cycle", {"pods": [*pods, {"pod": self.urgent("b"), "queuedAt": 3}]})

        assert "default/a" == found["pod"]

    async def test_profiles_have_an_order_each(self, tmp_path: Path) -> None:
        profiles = tuple(Profile.model_validate({"schedulerName": name}) for name in ("one", "two"))
        async with serving(Settings(cluster=saved(tmp_path), profiles=profiles)) as api:
            pods = [{"pod": pod_object(it, scheduler=it), "queuedAt": 1} for it in ("one", "two")]
            code, found = await ask(api, "cycle", {"pods": pods})

        assert (422, "pods: they belong to several profiles") == (code, found["message"])

    @pytest.mark.parametrize(
        ("asked", "at"),
        [
            pytest.param({"pods": []}, "pods", id="none"),
            pytest.param({"pods": [{**BY_NAME, "queuedAt": 1}] * (MOST_PENDING + 1)}, "pods", id="too many"),
            pytest.param({"pods": [{"queuedAt": 1}]}, "pods[0]", id="no pod"),
            pytest.param({"pods": {"name": "a"}}, "pods", id="no list"),
        ],
    )
    async def test_by_field(self, api: Api, asked: JsonObject, at: str) -> None:
        status, found = await ask(api, "cycle", asked)

        assert (422, [at]) == (status, [it["field"] for it in found["details"]["causes"]])

    async def test_the_first_mistakes_are_named_and_the_others_counted(self, api: Api) -> None:
        """A short body has room for thousands: to name them all would hold up the event loop."""
        status, found = await ask(api, "cycle", {"name": "a", "nodes": [1] * 5000})

        named = [f"nodes[{number}]" for number in range(MOST_CAUSES)]
        assert (422, named) == (status, [it["field"] for it in found["details"]["causes"]])
        assert found["message"].endswith(f"; and {5000 - MOST_CAUSES} more mistakes")


async def waits(api: Api) -> float:
    """How many decisions have waited for a bind that was due."""
    return (await api.samples("homeport_expected_bind_wait_seconds_count"))[""]


EITHER: Final = {
    "cycle": "Value error, give either pod, name or pods",
    "explain": "Value error, give either pod or name",
}
NAMELESS: Final = "the request is invalid: pod: metadata.name: required"


@pytest.mark.parametrize("path", ["cycle", "explain"])
class TestNoAnswer:
    @pytest.mark.parametrize(
        ("asked", "status", "expected"),
        [
            pytest.param({"pod": FOREIGN}, 404, 'no profile for schedulerName "volcano"', id="another scheduler's pod"),
            pytest.param({"name": "x"}, 404, 'pods "x" not found in namespace "default"', id="nobody knows the pod"),
            pytest.param({"pod": {"metadata": {}}}, 422, NAMELESS, id="a pod without a name"),
        ],
    )
    async def test_in_a_sentence(self, api: Api, path: str, asked: JsonObject, status: int, expected: str) -> None:
        code, found = await ask(api, path, asked)

        note = " (finished pods are not in the snapshot)" if path == "explain" and expected.startswith("pods ") else ""
        assert (status, expected + note) == (code, found["message"])

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            pytest.param(b"{}", ("FieldValueInvalid", "body", ""), id="neither pod nor name"),
            pytest.param(b'{"pod": {}, "name": "a"}', ("FieldValueInvalid", "body", ""), id="both"),
            pytest.param(
                b'{"name": "a", "bogus": "n1"}',
                ("FieldValueForbidden", "bogus", "Extra inputs are not permitted"),
                id="a field that nobody knows",
            ),
            pytest.param(
                b'{"name": "\xff"}',
                ("FieldValueInvalid", "body", "Invalid JSON: invalid unicode code point"),
                id="bytes that are no UTF-8",
            ),
            pytest.param(
                b"[" * 10_000,
                ("FieldValueInvalid", "body", "Invalid JSON: recursion limit exceeded"),
                id="nested without end",
            ),
        ],
    )
    async def test_by_field(self, api: Api, path: str, body: bytes, expected: tuple[str, str, str]) -> None:
        """The body is not repeated, and its content type does not matter."""
        response = await api.http.post(f"/api/v1/{path}", content=body)

        expected = (*expected[:2], expected[2] or EITHER[path])
        (cause,) = response.json()["details"]["causes"]
        message = cause["message"].partition(" at line ")[0]
        assert (422, expected) == (response.status_code, (cause["reason"], cause["field"], message))
        assert [] == status_breaches(response)

    @pytest.mark.parametrize("asked", [pytest.param(BY_NAME, id="by name"), pytest.param({"pod": NEW}, id="by body")])
    async def test_not_ready(self, tmp_path: Path, path: str, asked: JsonObject) -> None:
        unreachable = kubeconfig(tmp_path, "http://127.0.0.1:1")
        async with serving(Settings(kubeconfig=str(unreachable))) as api:
            status, answer = await ask(api, path, asked)

        assert 503 == status
        assert answer["message"].startswith(
            "homeport: the snapshot of the cluster is not complete: waiting for v1 Node"
        )


@pytest.mark.parametrize(("method", "point"), [("pre_filter", "PreFilter"), ("filter", "Filter")])
async def test_a_filter_that_fails(tmp_path: Path, method: str, point: str) -> None:
    """It ends a cycle. An explanation names it, and shows the verdicts of all others."""
    settings = Settings(cluster=saved(tmp_path), profiles=with_faulty())
    async with serving(settings, (*SHIPPED, faulty(method)), DEFAULT_WEIGHTS) as api:
        failed, cycle = await ask(api, "cycle", {"pod": NEW})
        status, explanation = await ask(api, "explain", {"pod": NEW})

    fault = str(plugin_error(FAULTY, point, FAULT))
    assert (500, fault) == (failed, cycle["message"])
    assert (200, ["n2", "n3"], {"plugin": FAULTY, "why": fault}) == (
        status,
        explanation["feasible"],
        explanation["notJudged"][-1],
    )


@pytest.mark.parametrize(("path", "method", "point"), [("cycle", "score", "Score"), ("explain", "explain", "Explain")])
async def test_a_plugin_that_fails_at_a_point_of_its_own(tmp_path: Path, path: str, method: str, point: str) -> None:
    settings = Settings(cluster=saved(tmp_path), profiles=with_faulty())
    async with serving(settings, (*SHIPPED, faulty(method)), DEFAULT_WEIGHTS) as api:
        status, found = await ask(api, path, {"pod": NEW})

    assert (500, str(plugin_error(FAULTY, point, FAULT))) == (status, found["message"])


HARD_COLUMNS: Final = ["domain", "eligible nodes", "pods", "minimum", "skew", "allowed"]
SOFT_COLUMNS: Final = ["domain", "eligible nodes", "pods"]


def hard(title: str, *rows: list[Any]) -> JsonObject:
    return {"title": f"DoNotSchedule over {title}", "columns": HARD_COLUMNS, "rows": list(rows)}


def soft(title: str, *rows: list[Any]) -> JsonObject:
    return {"title": f"ScheduleAnyway over {title}", "columns": SOFT_COLUMNS, "rows": list(rows)}


def web(name: str, **fields: Any) -> JsonObject:
    return pod_object(name, labels=WEB, **fields)


RUNNING: Final = [
    web("a", node="n1"),
    web("b", node="n1"),
    web("c", node="n2"),
    web("d", node="n2"),
    web("e", node="n3"),
]


async def explained(folder: Path, pod: JsonObject, *objects: JsonObject) -> JsonObject:
    """What is said of a pod on the small cluster with ``objects`` in it."""
    async with serving(Settings(cluster=saved(folder, *objects))) as api:
        status, found = await ask(api, "explain", {"pod": pod})
    assert 200 == status
    return dict(found)


def written(path: Path) -> str:
    """Time at which a saved cluster was written, as an answer has it."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class TestExplainSpread:
    async def test_every_part_of_the_answer(self, api: Api) -> None:
        """Hard: n1's zone holds one pod more than the others."""
        spread = {
            "tables": [
                hard(
                    f"{ZONE}, maxSkew 1",
                    ["z1", 1, 1, 0, 2, False],
                    ["z2", 1, 0, 0, 1, True],
                    ["z3", 1, 0, 0, 1, True],
                )
            ],
            "unblock": [f"{ZONE}=z1 takes the pod with 1 matching pod fewer, or with 1 more in z2, 1 more in z3"],
        }
        expected = {
            "pod": "default/web-new",
            "profile": "default-scheduler",
            "preset": "delegated",
            "judgedAt": written(Path(str(api.service._settings.cluster))),
            "schedulerName": "default-scheduler",
            "nodeName": "",
            "apiVersion": "homeport.dev/v1alpha1",
            "kind": "Explanation",
            "verdict": "Fits",
            "summary": "2 of 3 nodes fit",
            "heldAtPermit": None,
            "gate": [],
            "total": 3,
            "judges": JUDGES,
            "notJudged": NOT_JUDGED,
            "feasible": ["n2", "n3"],
            "groups": [{"count": 1, "nodes": ["n1"], "reasons": [TOO_FULL]}],
            "plugins": {SPREAD: spread, "StickyNode": {"tables": [], "unblock": []}},
            "resources": [],
            "remedies": [
                {
                    "sort": "FewerPods",
                    "change": f"one pod less in {ZONE}=z1",
                    "opens": 1,
                    "nodes": ["n1"],
                    "pods": ["web-1"],
                    "provedBy": "complete",
                },
                {
                    "sort": "MaxSkew",
                    "change": f"maxSkew: 2 in the constraint over {ZONE}",
                    "opens": 1,
                    "nodes": ["n1"],
                    "pods": [],
                    "provedBy": "complete",
                },
                {
                    "sort": "ScheduleAnyway",
                    "change": f"whenUnsatisfiable: ScheduleAnyway in the constraint over {ZONE}",
                    "opens": 1,
                    "nodes": ["n1"],
                    "pods": [],
                    "provedBy": "complete",
                },
            ],
            "impossible": [],
            "incomplete": False,
            "scheduler": None,
            "node": None,
            "bound": None,
            "home": None,
            "homeTaints": [],
        }

        assert [(200, expected)] * 2 == [await ask(api, "explain", BY_NAME), await ask(api, "explain", {"pod": NEW})]

    @pytest.mark.parametrize(
        ("spread", "tables", "unblock"),
        [
            pytest.param(
                [constraint(app="web", min_domains=5)],
                [
                    hard(
                        f"{ZONE}, maxSkew 1, minDomains 5",
                        ["z1", 1, 3, 0, 4, False],
                        ["z2", 1, 2, 0, 3, False],
                        ["z3", 1, 1, 0, 2, False],
                    )
                ],
                [
                    f"{ZONE}: 2 more domains are needed, until then the minimum counts as 0",
                    f"{ZONE}=z1 takes the pod with 3 matching pods fewer",
                    f"{ZONE}=z2 takes the pod with 2 matching pods fewer",
                    f"{ZONE}=z3 takes the pod with 1 matching pod fewer",
                ],
                id="too few domains: the minimum is 0",
            ),
            pytest.param(
                [constraint(app="web")],
                [
                    hard(
                        f"{ZONE}, maxSkew 1",
                        ["z1", 1, 3, 1, 3, False],
                        ["z2", 1, 2, 1, 2, False],
                        ["z3", 1, 1, 1, 1, True],
                    )
                ],
                [
                    f"{ZONE}=z1 takes the pod with 2 matching pods fewer, or with 1 more in z2, 2 more in z3",
                    f"{ZONE}=z2 takes the pod with 1 matching pod fewer, or with 1 more in z3",
                ],
                id="what it takes until the emptier domains have caught up",
            ),
            pytest.param(
                [constraint(app="web", soft=True), constraint("kubernetes.io/hostname", app="web", skew=5)],
                [
                    hard(
                        "kubernetes.io/hostname, maxSkew 5",
                        ["n1", 1, 3, 1, 3, True],
                        ["n2", 1, 2, 1, 2, True],
                        ["n3", 1, 1, 1, 1, True],
                    ),
                    soft(f"{ZONE}, maxSkew 1", ["z1", 1, 3], ["z2", 1, 2], ["z3", 1, 1]),
                ],
                [],
                id="hard constraints come first",
            ),
            pytest.param(
                [constraint("rack", app="web")],
                [hard("rack, maxSkew 1")],
                ["rack: 1 more domain is needed, until then the minimum counts as 0"],
                id="a label no node has",
            ),
        ],
    )
    async def test_tables(
        self, tmp_path: Path, spread: list[JsonObject], tables: list[JsonObject], unblock: list[str]
    ) -> None:
        """3, 2 and 1 pods in three zones of a node each."""

        found = await explained(tmp_path, web("new", spread=spread), *RUNNING)

        assert {"tables": tables, "unblock": unblock} == found["plugins"][SPREAD]

    async def test_what_would_unblock_it_does(self, tmp_path: Path) -> None:
        """With the pods that the sentence names in place, the domain takes the pod."""
        added = [web("f", node="n2"), web("g", node="n3"), web("h", node="n3")]

        assert "n1" not in (await explained(tmp_path, NEW, *RUNNING))["feasible"]
        assert "n1" in (await explained(tmp_path, NEW, *RUNNING, *added))["feasible"]

    async def test_constraints_that_cannot_be_read(self, api: Api) -> None:
        """The plugin fails on such a pod, like kube-scheduler's; the API server accepts none. The answer names it."""
        odd = web("odd", spread=[constraint(selector={"matchExpressions": [{"key": "a", "operator": "Odd"}]})])

        status, answer = await ask(api, "explain", {"pod": odd})

        (fault,) = (it["why"] for it in answer["notJudged"] if it["plugin"] == SPREAD)
        assert 200 == status
        assert fault.startswith(f'running PreFilter plugin "{SPREAD}": get constraints from pod')


async def test_a_gated_pod_whose_profile_leaves_its_gates_to_the_scheduler(api: Api) -> None:
    gated = pod_object("later", more={"schedulingGates": [{"name": "example.com/wait"}]})

    _, answer = await ask(api, "explain", {"pod": gated})

    assert ("Gated", ["SchedulingGates"]) == (answer["verdict"], [it["plugin"] for it in answer["gate"]])
    assert answer["summary"].startswith("not scheduled: waiting for scheduling gates; without the gate, ")


def owned_by(name: str) -> JsonObject:
    return controller("Database", name, api_version="example.com/v1")


def database(name: str, home: str = "") -> JsonObject:
    """An object that keeps a home."""
    annotations = {"homeport.dev/home": home} if home else {}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    return {"apiVersion": "example.com/v1", "kind": "Database", "metadata": metadata}


COLUMNS: Final = ["kept by", "node", "policy", "state", "what happens", "grace", "recorded", "made by"]
HARD: Final = "hard (default)"
HOMES: Final = Profile.model_validate(
    {
        "pluginConfig": [
            {
                "name": "StickyNode",
                "args": {"policy": "hard", "owners": [{"apiVersion": "example.com/v1", "kind": "Database"}]},
            }
        ]
    }
)


async def explained_with_homes(folder: Path, pod: JsonObject, *objects: JsonObject) -> JsonObject:
    async with serving(Settings(cluster=saved(folder, *objects), profiles=(HOMES,))) as api:
        status, found = await ask(api, "explain", {"pod": pod})
    assert 200 == status
    return dict(found)


class TestExplainHome:
    @pytest.mark.parametrize(
        ("home", "row", "feasible", "unblock"),
        [
            pytest.param(
                "n2", ["n2", HARD, "its node takes pods", "only home passes", "", True], ["n2"], [], id="at home"
            ),
            pytest.param(
                "n9",
                ["n9", HARD, "there is no such node", "the pod waits", "", True],
                [],
                [
                    "node n9 is not there: bring it back, or set or remove homeport.dev/home on Database default/db",
                ],
                id="the home is gone: what would unblock it",
            ),
        ],
    )
    async def test_the_home_and_who_keeps_it(
        self, tmp_path: Path, home: str, row: list[Any], feasible: list[str], unblock: list[str]
    ) -> None:
        pod = pod_object("db-0", owner=owned_by("db"))

        found = await explained_with_homes(tmp_path, pod, database("db", home))

        table = {"title": "home", "columns": COLUMNS, "rows": [["Database default/db", *row, ""]]}
        assert ({"tables": [table], "unblock": unblock}, feasible) == (
            found["plugins"]["StickyNode"],
            found["feasible"],
        )

    @pytest.mark.parametrize("preset", ["complete", "delegated"])
    async def test_a_home_that_is_full(self, tmp_path: Path, preset: str) -> None:
        """By all default filters, because of a saved cluster all are judged."""
        since = {"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-11-22T12:00:00Z"}
        pod = pod_object("db-0", owner=owned_by("db"), status={"conditions": [since]})
        profile = Profile.model_validate({**HOMES.model_dump(exclude_unset=True), "preset": preset})

        async with serving(
            Settings(cluster=saved(tmp_path, database("db", "n2"), node_object("n2")), profiles=(profile,)),
            SHIPPED,
            DEFAULT_WEIGHTS,
        ) as api:
            _, found = await ask(api, "explain", {"pod": pod})

        (*_, asked), unblock = (found["plugins"]["StickyNode"][it] for it in ("tables", "unblock"))
        move = "move the home or release it: set or remove homeport.dev/home on Database default/db"
        assert ("home", [], True) == (asked["title"], found["feasible"], move in unblock)

    async def test_a_cordoned_home_can_be_uncordoned_or_released(self, tmp_path: Path) -> None:
        """The plugin looks its home up by itself: it sees the node as the change leaves it."""
        pod, room = pod_object("db-0", owner=owned_by("db")), {"allocatable": {"pods": "9"}}
        home = node_object("n2", unschedulable=True, status=room)

        found = await explained_with_homes(tmp_path, pod, database("db", "n2"), home)

        opened = {it["change"]: it["nodes"] for it in found["remedies"]}
        assert ([], ["n2"]) == (found["feasible"], opened["uncordon n2"])
        assert {"n1", "n3"} <= {*opened["release the home"]}

    async def test_a_pod_that_is_rejected_before_any_node_is_looked_at(self, tmp_path: Path) -> None:
        found = await explained_with_homes(tmp_path, pod_object("db-0", owner=owned_by("db")))

        sentence = "the pod's owner Database default/db is not in the snapshot: it must exist first"
        assert {
            "pod": "default/db-0",
            "profile": "default-scheduler",
            "preset": "delegated",
            "judgedAt": written(tmp_path / "cluster.json"),
            "schedulerName": "default-scheduler",
            "nodeName": "",
            "apiVersion": "homeport.dev/v1alpha1",
            "kind": "Explanation",
            "verdict": "NoNodeFits",
            "summary": "0 of 3 nodes fit",
            "heldAtPermit": None,
            "gate": [],
            "total": 3,
            "judges": JUDGES,
            "notJudged": NOT_JUDGED,
            "feasible": [],
            "groups": [{"count": 3, "nodes": ["n1", "n2", "n3"], "reasons": [NO_OWNER]}],
            "resources": [],
            "remedies": [],
            "impossible": [],
            "incomplete": False,
            "scheduler": None,
            "node": None,
            "bound": None,
            "home": None,
            "homeTaints": [],
            "plugins": {
                SPREAD: {"tables": [], "unblock": []},
                "StickyNode": {"tables": [], "unblock": [sentence]},
            },
        } == found


@pytest.mark.parametrize("explain", ["complete", "profile"])
async def test_constraints_are_shown_if_they_are_judged(
    tmp_path: Path, explain: Literal["complete", "profile"]
) -> None:
    """The profile leaves topology spread to kube-scheduler."""
    document = {"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"disabled": [{"name": SPREAD}]}}}
    profiles = (Profile.model_validate(document),)
    async with serving(Settings(cluster=saved(tmp_path), profiles=profiles, explain=explain)) as api:
        _, found = await ask(api, "explain", BY_NAME)

    if explain == "complete":
        (table,) = found["plugins"][SPREAD]["tables"]
        assert (["z1", 1, 1, 0, 2, False], ["n2", "n3"]) == (table["rows"][0], found["feasible"])
        assert "kube-scheduler" == found["judges"][SPREAD]
    else:
        assert SPREAD not in found["plugins"]
        assert SPREAD in {it["plugin"] for it in found["notJudged"]}


async def test_explaining_a_bound_pod_leaves_it_out_of_the_counts(api: Api) -> None:
    """It asks: would it be placed there again?"""
    status, found = await ask(api, "explain", {"name": "web-1"})

    assert (200, ["n1", "n2", "n3"]) == (status, found["feasible"])
    assert {"consistent": True, "differences": []} == await api.get("/api/v1/check")


DEFAULTS: Final = [it for it in SHIPPED if it.name in KUBE_SCHEDULER_DEFAULTS and has_point(it, "filter")]
JUDGES: Final = {
    "StickyNode": "Homeport",
    **dict.fromkeys([it.name for it in DEFAULTS], "kube-scheduler"),
    SPREAD: "Homeport",
}
"""Filters of the profile are Homeport's, and the others of the default profile are kube-scheduler's."""

NOT_JUDGED: Final[list[JsonObject]] = []
"""Of a saved cluster, all default filters judge."""

FULL: Final = {"schedulerName": "full", "preset": "complete"}
ROOM: Final[JsonObject] = {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}


async def test_a_bound_pod_is_explained_as_if_it_had_no_node_also_by_another_profile(tmp_path: Path) -> None:
    """Where could a pod go that has a node, by rules that its own profile leaves to others?"""
    nodes = [node_object(f"m{number}", zone="z9", status=ROOM, unschedulable=number == 2) for number in (1, 2, 3)]
    running = pod_object("runs", node="m1")
    profiles = (Profile(), Profile.model_validate(FULL))
    async with serving(Settings(cluster=saved(tmp_path, *nodes, running), profiles=profiles)) as api:
        answers = [(await ask(api, "explain", {"name": "runs", **more}))[1] for more in ({}, {"schedulerName": "full"})]
        status, unknown = await ask(api, "explain", {"name": "runs", "schedulerName": "nobody"})

    assert [("default-scheduler", "delegated"), ("full", "complete")] == [
        (it["profile"], it["preset"]) for it in answers
    ]
    assert ["m1", "m3"] == [it for it in answers[0]["feasible"] if it.startswith("m")]
    assert ["n1", "n2", "n3", "m1", "m3"] == answers[1]["feasible"]
    assert [NOT_JUDGED, []] == [it["notJudged"] for it in answers]
    assert [("default-scheduler", "m1", "Bound"), ("full", "m1", "Bound")] == [
        (it["schedulerName"], it["nodeName"], it["verdict"]) for it in answers
    ]
    assert (404, 'homeport: no profile for schedulerName "nobody"') == (status, f"homeport: {unknown['message']}")


async def test_a_node_without_the_label_cannot_be_unblocked(tmp_path: Path) -> None:
    found = await explained(tmp_path, NOWHERE, node_object("n4", labels={"rack": "r1"}, status=ROOM))

    missing = {"code": "UnschedulableAndUnresolvable", "plugin": SPREAD, "reasons": [NO_LABEL]}
    assert [{"count": 3, "nodes": ["n1", "n2", "n3"], "reasons": [missing]}] == found["groups"]
    assert ["n4"] == found["feasible"]
    assert [hard("rack, maxSkew 1", ["r1", 1, 0, 0, 1, True])] == found["plugins"][SPREAD]["tables"]


PADDING: Final = " " * 100_000
"""Makes a body a long one."""


@pytest.mark.parametrize("path", ["cycle", "explain"])
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        pytest.param(
            {"name": "a" + PADDING, "nodes": ["n"] * (MOST_NAMES + 1)}, f"at most {MOST_NAMES} names", id="names"
        ),
        pytest.param({"name": "a" + PADDING, "nodes": [1, 2]}, "$.nodes[0]", id="numbers for names"),
        pytest.param({"name": PADDING, "more": 1}, "unknown field `more`", id="another field"),
        pytest.param({"pods": [{"name": "n" * 99}] * (MOST_PENDING + 1)}, f"at most {MOST_PENDING} pods", id="pods"),
        pytest.param({"pods": [{"name": PADDING, "more": 1}]}, "unknown field `more`", id="another field of a pod"),
        pytest.param({"pod": [PADDING]}, "a pod is not an object", id="no object"),
        pytest.param({"pod": {"x": [{}] * (MOST_OBJECTS + 1)}}, f"at most {MOST_OBJECTS} objects", id="objects"),
        pytest.param({"pod": {"x": [1] * (MOST_VALUES + 2)}}, f"pod: at most {MOST_VALUES} objects", id="values"),
    ],
)
async def test_a_body_that_would_hold_up_the_loop_is_refused(api: Api, path: str, asked: JsonObject, told: str) -> None:
    """In one sentence: a list of wrong names would be as many mistakes."""
    status, found = await ask(api, path, asked)

    assert 422 == status
    assert told in found["message"]
    assert len(found["message"]) < 200


async def test_a_deeply_nested_body_is_answered(api: Api) -> None:
    """Also a long one, which is cut in steps first."""
    levels = 3_000
    nested = "[" * levels + f'"{PADDING}"' + "]" * levels
    body = json.dumps({"pod": {**NEW, "padding": "@"}}).replace('"@"', nested)

    assert 200 == (await api.http.post("/api/v1/cycle", content=body)).status_code
