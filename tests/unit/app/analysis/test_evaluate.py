"""Saved cases: any objects in any order, a bad case gives one line, and the run goes on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import pytest

from app.__main__ import main
from app.analysis.evaluate import Evaluator
from app.config.profile import Profile
from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin, PreFilterPlugin, ScorePlugin
from app.framework.status import Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard
from app.runtime.profiles import ResolvedProfile
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.runtime.resolving import resolve
from app.telemetry.metrics import Metrics
from plugins import SHIPPED
from tests.builders import JsonObject, constraint, container, encoded, node_object, pod_object, service_object
from tests.fakes import FromSpec, spec_of
from tests.harness import only

SPREAD: Final = "PodTopologySpread"
PREEMPTION: Final = "DefaultPreemption"
WEB: Final = {"app": "web"}
NODES: Final = [node_object(f"n{number}", zone=f"z{number}") for number in (1, 2)]
RUNNING: Final = pod_object("web-1", labels=WEB, node="n1")
POD: Final = pod_object("web-2", labels=WEB, spread=[constraint(app="web")])
SUCCESS: Final = {"code": "Success", "plugin": "", "reasons": []}
TOO_FULL: Final = {
    "code": "Unschedulable",
    "plugin": SPREAD,
    "reasons": ["node(s) didn't match pod topology spread constraints"],
}
VERDICT: Final = {
    "name": "one more",
    "preFilter": SUCCESS,
    "filter": {"n1": TOO_FULL, "n2": SUCCESS},
    "score": {"n2": {}},
    "total": {"n2": 0},
}
OUR_CONFIG: Final = only(SPREAD)


def case(**fields: Any) -> JsonObject:
    """An ordinary case, but for ``fields``."""
    return {"name": "one more", "config": OUR_CONFIG, "objects": [*NODES, RUNNING], "pod": POD, **fields}


def evaluator(*specs: Any) -> Evaluator:
    return Evaluator(Registry([*SHIPPED, *specs], KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))


def judged(found: JsonObject | bytes) -> Any:
    return json.loads(evaluator().evaluate(found if isinstance(found, bytes) else encoded(found)))


def bad(message: str, name: str = "one more") -> JsonObject:
    return {"name": name, "error": message}


class TestPreemption:
    """Whom DefaultPreemption would have evicted, in the words of the format. The rules have tests of their own."""

    CONFIG: Final = only(SPREAD, PREEMPTION)
    HIGH: Final = {**POD, "spec": {**POD["spec"], "priority": 10}}

    def told(self, **fields: Any) -> JsonObject:
        """What is said beside the verdict itself."""
        line = case(**{"config": self.CONFIG, "pod": self.HIGH, "preempt": {"nodes": ["n1", "n2"]}, **fields})
        found = judged(line)
        return {key: value for key, value in found.items() if key not in VERDICT}

    def test_on_each_node_named_and_whatever_the_filters_said(self) -> None:
        nobody = {
            "code": "UnschedulableAndUnresolvable",
            "plugin": "",
            "reasons": ["No preemption victims found for incoming pod"],
        }

        assert {
            "victims": {"n1": {"pods": ["default/web-1"], "numPDBViolations": 0}},
            "noVictims": {"n2": nobody},
            "pick": ["n1"],
        } == self.told()
        assert {"victims": {}, "noVictims": {}, "pick": []} == self.told(preempt={"nodes": []})
        assert {} == self.told(preempt=None)

    def test_where_nobody_has_to_go_it_is_an_error_of_the_node(self) -> None:
        found = self.told(objects=[*NODES, RUNNING, pod_object("other", node="n2")], preempt={"nodes": ["n2"]})

        reasons = ['expected at least one victim pod on node "n2"']
        assert {"n2": {"code": "Error", "plugin": "", "reasons": reasons}} == found["noVictims"]
        assert ({}, []) == (found["victims"], found["pick"])

    def test_who_must_not_is_told_so(self) -> None:
        pod = {**self.HIGH, "spec": {**self.HIGH["spec"], "preemptionPolicy": "Never"}}

        assert {
            "victims": {},
            "noVictims": {},
            "pick": [],
            "notEligible": "not eligible due to preemptionPolicy=Never.",
        } == self.told(pod=pod)

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            pytest.param(unresolvable("never"), [], id="unresolvable: no node is a candidate"),
            pytest.param(unschedulable("not now"), ["n1"], id="unschedulable: all nodes are"),
        ],
    )
    def test_where_prefilter_rejects(self, answer: Status, expected: list[str]) -> None:
        class Refuses(FromSpec, PreFilterPlugin):
            def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
                return answer, None

        line = case(config=only(SPREAD, PREEMPTION, "Refuses"), pod=self.HIGH, preempt={"nodes": ["n1"]})
        found = json.loads(evaluator(spec_of(Refuses)).evaluate(encoded(line)))

        assert (expected, {}) == (found["pick"], found["noVictims"])
        assert expected == list(found["victims"])

    def test_a_plugin_that_fails_is_an_error_of_the_node(self) -> None:
        class Breaks(FromSpec, FilterPlugin):
            def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
                if not node.pods:
                    raise ZeroDivisionError("a screw is loose")
                return unschedulable("full")

        line = case(config=only(PREEMPTION, "Breaks"), pod=self.HIGH, preempt={"nodes": ["n1"]})
        found = json.loads(evaluator(spec_of(Breaks)).evaluate(encoded(line)))

        assert ({}, []) == (found["victims"], found["pick"])
        assert ("Error", "Breaks") == (found["noVictims"]["n1"]["code"], found["noVictims"]["n1"]["plugin"])


class TestVerdict:
    def test_of_an_ordinary_case(self) -> None:
        """Its keys are sorted; one of the evaluator's cases does not see another."""
        judge = evaluator()
        first, crowded, again = (
            judge.evaluate(encoded(case(objects=objects))) for objects in ([*NODES, RUNNING], NODES, [*NODES, RUNNING])
        )

        assert json.dumps(VERDICT, sort_keys=True, separators=(",", ":")).encode() == first == again
        assert {"n1": SUCCESS, "n2": SUCCESS} == json.loads(crowded)["filter"]

    def test_objects_come_in_any_order(self) -> None:
        """A pod may come before its node, and each of them before or after what selects it."""
        objects = [*NODES, RUNNING, pod_object("web-0", labels=WEB, node="n2"), service_object("web", WEB)]
        expected = judged(case(objects=objects))

        for seed in range(20):
            shuffled = random.Random(seed).sample(objects, len(objects))
            assert expected == judged(case(objects=shuffled))

    @pytest.mark.parametrize(
        "found",
        [
            pytest.param({"apiVersion": "v1", "kind": "ConfigMap"}, id="a kind of Kubernetes, without a name"),
            pytest.param({"apiVersion": "x/v1", "kind": "X", "metadata": 5}, id="a kind of somebody else, odd"),
            pytest.param({"apiVersion": "x/v1", "kind": "Pod", "metadata": 5}, id="a Pod of another group"),
            pytest.param(service_object("web", WEB), id="a kind that only other plugins read"),
        ],
    )
    def test_kinds_that_nobody_needs_are_passed_over(self, found: JsonObject) -> None:
        assert VERDICT == judged(case(objects=[found, *NODES, found, RUNNING]))

    def test_the_pod_itself_may_be_among_the_objects(self) -> None:
        assert VERDICT == judged(case(objects=[POD, *NODES, RUNNING]))

    @pytest.mark.parametrize(
        "objects", [pytest.param([], id="none"), pytest.param(None, id="null"), pytest.param([RUNNING], id="only pods")]
    )
    def test_a_cluster_without_nodes(self, objects: Any) -> None:
        no_nodes = {
            "code": "UnschedulableAndUnresolvable",
            "plugin": "",
            "reasons": ["no nodes available to schedule pods"],
        }

        expected = {"name": "one more", "preFilter": no_nodes, "filter": {}, "score": {}, "total": {}}
        assert expected == judged(case(objects=objects))


class TestRelease:
    """1.36 scores what a pod makes of a node, 1.35 what the node is then."""

    BALANCE: Final = "NodeResourcesBalancedAllocation"
    NODE: Final = node_object("n1", status={"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "5"}})
    ASKS: Final = pod_object("p", containers=[container(requests={"cpu": "2"})])

    def scored(self, config: JsonObject, release: str) -> int:
        found = Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()), release)
        line = found.evaluate(encoded(case(config=config, objects=[self.NODE], pod=self.ASKS)))
        points: int = json.loads(line)["score"]["n1"][self.BALANCE]
        return points

    @pytest.mark.parametrize(("release", "expected"), [("1.35", 75), ("1.36", 62)])
    def test_a_profile_means_the_release_that_was_asked_for(self, release: str, expected: int) -> None:
        assert expected == self.scored(only(self.BALANCE), release)

    def test_unless_it_says_which(self) -> None:
        assert 75 == self.scored(only(self.BALANCE) | {"release": "1.35"}, "1.36")

    def test_the_default_profile_is_that_of_the_release(self) -> None:
        def rejected(release: str) -> str:
            pod = pod_object("pending", more={"hostNetwork": True, "hostUsers": False})
            found = Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()), release)
            line = found.evaluate(encoded(case(config={}, objects=[self.NODE], pod=pod)))
            plugin: str = json.loads(line)["filter"]["n1"]["plugin"]
            return plugin

        assert ["", "NodeDeclaredFeatures"] == [rejected(it) for it in ("1.35", "1.36")]


class TestBadCase:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            pytest.param(b"{", bad("Input data was truncated", ""), id="no JSON"),
            pytest.param(b'{"name": 5}', bad("Expected `str`, got `int` - at `$.name`", ""), id="a name that is none"),
            pytest.param(b'{"name": "a"}', bad("Object missing required field `pod`", "a"), id="without a pod"),
            pytest.param(
                encoded(case(pod={"metadata": {}})), bad("pod: metadata.name: required"), id="a pod without a name"
            ),
            pytest.param(
                encoded(case(objects=[*NODES, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": 5}}])),
                bad("objects[2]: Expected `str | null`, got `int` - at `$.metadata.name`"),
                id="an object that is none, by its place",
            ),
            pytest.param(
                encoded(case(objects=[{"metadata": {"name": "n1"}}])),
                bad("objects[0]: Object missing required field `kind`"),
                id="an object without a kind",
            ),
            pytest.param(
                encoded(case(config={"plugins": {"filter": {"enabled": [{"nam": "x"}]}}})),
                bad(
                    "config.plugins.filter.enabled.0.name: Field required; "
                    "config.plugins.filter.enabled.0.nam: Extra inputs are not permitted"
                ),
                id="a profile with fields nobody knows: all mistakes, by field",
            ),
            pytest.param(
                encoded(case(config={"preset": "complete", "bindRecheck": [], "preemption": "Own"})),
                bad(
                    "config.preset: is not a field of KubeSchedulerConfiguration; "
                    "config.bindRecheck: is not a field of KubeSchedulerConfiguration; "
                    "config.preemption: is not a field of KubeSchedulerConfiguration"
                ),
                id="what only a service has",
            ),
            pytest.param(
                encoded(case(config={"plugins": {"multiPoint": {"disabled": [{"name": "*"}]}}})),
                bad(
                    'config: profile "default-scheduler": exactly one queue sort plugin is required, found 0; '
                    'profile "default-scheduler": at least one bind plugin is required'
                ),
                id="a profile that lacks what each must have",
            ),
            pytest.param(
                encoded(case(config=only("GangScheduling"))),
                bad("plugins not available: [GangScheduling]"),
                id="an in-tree plugin that does not run here",
            ),
            pytest.param(
                encoded(case(preempt={"nodes": ["n1"]})),
                bad("preempt: the profile has no DefaultPreemption"),
                id="a case about preemption without its plugin",
            ),
            pytest.param(
                encoded(case(config=only(SPREAD, PREEMPTION), preempt={"nodes": ["n1", "n9"]})),
                bad("preempt.nodes: no such node: n9"),
                id="whom to evict on a node that is not there",
            ),
            pytest.param(
                encoded(case(preempt=["n1"])),
                bad("Expected `object | null`, got `array` - at `$.preempt`"),
                id="preempt is no object",
            ),
        ],
    )
    def test_it_gives_an_error_that_names_the_field(self, line: bytes, expected: JsonObject) -> None:
        assert expected == judged(line)

    def test_without_a_config_kube_schedulers_default_profile_is_meant(self) -> None:
        found = case(objects=[TestRelease.NODE], pod=TestRelease.ASKS)
        del found["config"]

        for named in (found, {**found, "config": None}, {**found, "config": {}}):
            scored = judged(named)["score"]["n1"]
            assert (
                {"TaintToleration", "NodeResourcesFit", "ImageLocality"} <= scored.keys() <= {*KUBE_SCHEDULER_DEFAULTS}
            )

    def test_a_plugin_that_fails_is_told(self) -> None:
        odd = pod_object("odd", spread=[constraint(selector={"matchExpressions": [{"key": "a", "operator": "Odd"}]})])

        found = judged(case(pod=odd))

        assert ("Error", SPREAD) == (found["preFilter"]["code"], found["preFilter"]["plugin"])
        assert ({}, {}, {}) == (found["filter"], found["score"], found["total"])

    @pytest.mark.parametrize("absurd", [b"[" * 1000 + b"]" * 1000, b"[" * 100_000 + b"]" * 100_000, b'"\xff"'])
    @pytest.mark.parametrize("field", ["config", "objects", "pod", "preempt", "name"])
    def test_nesting_without_end_is_a_bad_case_and_so_are_bytes_that_are_no_utf_8(
        self, field: str, absurd: bytes
    ) -> None:
        deep = encoded(case(**{field: "DEEP"})).replace(b'"DEEP"', absurd)

        assert "error" in judged(deep)

    @pytest.mark.parametrize("depth", [1000, 9_000])
    def test_nesting_that_the_api_server_stores_is_judged(self, depth: int) -> None:
        """In a pod, in an object, and where nobody looks."""
        fields = {"managedFields": [{"fieldsV1": "DEEP"}]}
        found = case(unknown="DEEP")
        found["pod"]["metadata"] |= fields
        found["objects"][0]["metadata"] |= fields
        deep = encoded(found).replace(b'"DEEP"', b'{"f:a":' * depth + b"{}" + b"}" * depth)

        assert judged(case()) == judged(deep)


def test_a_profile_is_compiled_once_per_distinct_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad one is not checked again either."""
    compiled: list[Profile] = []

    def counting(profiles: Sequence[Profile], registry: Registry) -> list[ResolvedProfile]:
        compiled.extend(profiles)
        return resolve(profiles, registry)

    monkeypatch.setattr("app.analysis.evaluate.resolve", counting)
    judge = evaluator()

    for config in (OUR_CONFIG, only("Nonsense"), OUR_CONFIG, only(), only("Nonsense"), OUR_CONFIG):
        judge.evaluate(encoded(case(config=config)))

    assert 3 == len(compiled)


class Raises(FromSpec, ScorePlugin):
    """Cannot say what it should."""

    def score(self, *_: object) -> int:
        raise RuntimeError("a screw is loose")


def test_a_score_plugin_that_fails_gives_an_error() -> None:
    judge = evaluator(spec_of(Raises))

    found = json.loads(judge.evaluate(encoded(case(config=only("Raises")))))

    assert bad('running Score plugins: plugin "Raises" failed with: a screw is loose') == found


def without(config: JsonObject, point: str) -> JsonObject:
    """The profile, but for PodTopologySpread at one extension point."""
    return {**config, "plugins": {**config["plugins"], point: {"disabled": [{"name": SPREAD}]}}}


def test_a_filter_that_was_not_prepared_fails_on_every_node() -> None:
    """kube-scheduler would end the cycle: nothing is scored."""
    text = f'running "{SPREAD}" filter plugin: reading "PreFilter{SPREAD}" from cycleState: not found'
    failed = {"code": "Error", "plugin": SPREAD, "reasons": [text]}

    found = judged(case(config=without(OUR_CONFIG, "preFilter")))

    assert {**VERDICT, "filter": {"n1": failed, "n2": failed}, "score": {}, "total": {}} == found


def test_a_score_that_was_not_prepared_is_an_error() -> None:
    text = f'plugin "{SPREAD}" failed with: error reading "PreScore{SPREAD}" from cycleState: not found'

    assert bad(f"running Score plugins: {text}") == judged(case(config=without(OUR_CONFIG, "preScore")))


class FailsOn(FromSpec, FilterPlugin):
    """Knows n1, and cannot say anything about another node."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if node.name != "n1":
            raise RuntimeError("a screw is loose")
        return unschedulable("no")


@pytest.mark.parametrize("order", [("FailsOn", SPREAD), (SPREAD, "FailsOn")])
def test_a_filter_that_fails_on_one_node_says_so_of_that_node(order: tuple[str, str]) -> None:
    """And of each node the first plugin that does not pass it counts."""
    found = json.loads(evaluator(spec_of(FailsOn)).evaluate(encoded(case(config=only(*order)))))

    failed = {"code": "Error", "plugin": "FailsOn", "reasons": ['running "FailsOn" filter plugin: a screw is loose']}
    no = {"code": "Unschedulable", "plugin": "FailsOn", "reasons": ["no"]}
    n1 = no if order[0] == "FailsOn" else TOO_FULL
    assert {**VERDICT, "filter": {"n1": n1, "n2": failed}, "score": {}, "total": {}} == found


class TestCommand:
    def test_a_verdict_is_written_before_the_next_case_is_read(self) -> None:
        """Through pipes: each answer is awaited before the next line is sent. Empty lines are none."""
        command = [sys.executable, "-m", "homeport", "evaluate"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
            assert running.stdin is not None
            assert running.stdout is not None
            answers = [asked(running.stdin, running.stdout, encoded(case(name=str(number)))) for number in range(3)]
            answers.append(asked(running.stdin, running.stdout, b"\n  \n{"))
            answers.append(asked(running.stdin, running.stdout, encoded(case())))
            running.stdin.close()
            rest = running.stdout.read()

        expected = [{**VERDICT, "name": str(number)} for number in range(3)]
        assert [*expected, bad("Input data was truncated", ""), VERDICT] == answers
        assert (b"", 0) == (rest, running.returncode)

    def test_a_file(self, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        path = tmp_path / "cases.jsonl"
        path.write_bytes(encoded(case()) + b"\n\n" + encoded(case(name="last, without an end of line")))

        code = main(["evaluate", str(path)])

        found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
        assert (0, [VERDICT, {**VERDICT, "name": "last, without an end of line"}]) == (code, found)

    def test_a_file_that_is_not_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        code = main(["evaluate", str(tmp_path / "none")])

        assert (3, "", True) == (code, *(text if not text else "No such file" in text for text in capsys.readouterr()))


def asked(stdin: IO[bytes], stdout: IO[bytes], line: bytes) -> Any:
    stdin.write(line + b"\n")
    stdin.flush()
    return json.loads(stdout.readline())
