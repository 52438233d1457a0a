"""Requests are read as Go reads them; answers are written so that Go can read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from app.kube.core_decoding import core_v1, decode_node
from app.kube.decoding import without_deep_parts
from app.kube.extras import Extra
from app.wire.extender_answers import (
    NodeVictims,
    VictimUid,
    encode_binding,
    encode_classed,
    encode_filter,
    encode_filter_error,
    encode_filter_nodes,
    encode_priorities,
    encode_victims,
)
from app.wire.extender_v1 import (
    BindingArgs,
    MalformedRequest,
    NodesRequest,
    PreemptionArgs,
    TooDeepRequest,
    decode_args,
    decode_binding,
    decode_preemption,
)
from tests.api.recorded import CALLS, Call, camel, recased
from tests.builders import container, encoded, make_pod, pod_object

POD = pod_object("web-1", labels={"app": "web"}, node_selector={"disk": "ssd"})
SLIM = make_pod("web-1", labels={"app": "web"}, node_selector={"disk": "ssd"})
ARGS = [call for call in CALLS if call.verb in ("filter", "prioritize")]
PREEMPTIONS = [call for call in CALLS if call.verb == "preempt"]
BINDINGS = [call for call in CALLS if call.verb == "bind"]
CASES = [pytest.param(str.lower, id="lower"), pytest.param(camel, id="camel"), pytest.param(str.upper, id="UPPER")]


EVERYTHING = core_v1(list(Extra))
DEMANDING = pod_object(
    containers=[
        container(requests={"cpu": "1", "example.com/Image": "2"}, ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])
    ],
    more={
        "initContainers": [container("first", restartPolicy="Always", requests={"cpu": "2"})],
        "overhead": {"cpu": "1m"},
        "resources": {"requests": {"memory": "1Ki"}},
        "volumes": [{"name": "data", "image": {"reference": "data:1"}}],
    },
    status={
        "containerStatuses": [{"name": "main", "resources": {"requests": {}}, "allocatedResources": {"cpu": "4"}}],
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
    },
)


def recorded(calls: list[Call]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("call", [pytest.param(call, id=call.name) for call in calls])


def args_of(**fields: Any) -> bytes:
    return encoded({"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"], **fields})


def readable(args: NodesRequest) -> Any:
    """The request as a value that compares: nodes slim instead of raw."""
    nodes = None if args.nodes is None else [decode_node(node) for node in args.nodes]
    return (args.pod, args.names, nodes)


def asked_for(call: Call) -> Any:
    asked = call.asked
    nodes = asked["Nodes"]
    return (asked["NodeNames"], None if nodes is None else [node["metadata"]["name"] for node in nodes["items"]])


class TestArgs:
    @recorded(ARGS)
    def test_a_recorded_request_names_its_pod_and_the_nodes_asked_for(self, call: Call) -> None:
        found = decode_args(call.request)

        metadata = call.asked["Pod"]["metadata"]
        assert (metadata["namespace"], metadata["name"], metadata["uid"], metadata["resourceVersion"]) == (
            found.pod.namespace,
            found.pod.name,
            found.pod.uid,
            found.pod.resource_version,
        )
        _, names, nodes = readable(found)
        assert asked_for(call) == (names, None if nodes is None else [node.name for node in nodes])

    @recorded([call for call in ARGS if call.asked["Nodes"]])
    def test_whole_nodes_stay_as_they_came(self, call: Call) -> None:
        assert call.asked["Nodes"]["items"] == [
            json.loads(bytes(node)) for node in decode_args(call.request).nodes or ()
        ]

    @pytest.mark.parametrize("case", [pytest.param(str, id="usual"), *CASES])
    def test_what_is_decoded_on_demand_is_read_of_the_pod_that_is_asked_about(self, case: Callable[[str], str]) -> None:
        args = decode_args(encoded(recased({"Pod": DEMANDING, "NodeNames": []}, case)), EVERYTHING)
        victims = decode_preemption(encoded(recased({"Pod": DEMANDING}, case)), EVERYTHING)

        assert EVERYTHING.decode_pod(encoded(DEMANDING)).spec is args.pod.spec is victims.pod.spec
        assert {"cpu": 3001, "memory": 1024, "example.com/Image": 2} == args.pod.spec.resources.requests
        assert {"cpu": 6001, "memory": 1024} == args.pod.spec.resources.requested

    @pytest.mark.parametrize("case", CASES)
    @recorded(ARGS)
    def test_any_case_of_a_key_reads_the_same(self, call: Call, case: Callable[[str], str]) -> None:
        assert readable(decode_args(call.request)) == readable(decode_args(encoded(recased(call.asked, case))))

    def test_keys_that_users_choose_keep_their_case(self) -> None:
        chosen = {"App": "Web", "NAME": "x", "spec": "y"}
        body = encoded(recased({"Pod": pod_object(labels=chosen), "NodeNames": ["N1", "n1"]}, str.lower))

        found = decode_args(body)

        assert (chosen, ["N1", "n1"]) == (dict(found.pod.labels.items()), found.names)

    @pytest.mark.parametrize(
        ("fields", "names"),
        [
            pytest.param({"NodeNames": []}, [], id="no names"),
            pytest.param({"NodeNames": ["n1", "n1"]}, ["n1", "n1"], id="a name twice"),
            pytest.param({"NodeNames": ["n1", None]}, ["n1", ""], id="a null name is an empty one"),
            pytest.param({"NodeNames": ["n1"], "Nodes": {"items": []}}, ["n1"], id="both forms: the names count"),
        ],
    )
    def test_names(self, fields: dict[str, Any], names: list[str]) -> None:
        assert NodesRequest(SLIM, names, None) == decode_args(args_of(**fields))

    @pytest.mark.parametrize(
        "nodes",
        [
            pytest.param({"items": None}, id="a null list"),
            pytest.param({"metadata": {}, "items": []}, id="with list metadata"),
        ],
    )
    def test_a_node_list_without_nodes_asks_for_none(self, nodes: dict[str, Any]) -> None:
        assert NodesRequest(SLIM, None, []) == decode_args(args_of(Nodes=nodes, NodeNames=None))

    @pytest.mark.parametrize(
        "extra",
        [
            pytest.param({"Extra": {"deep": [1]}}, id="of no verb"),
            pytest.param({"": None}, id="an empty one"),
        ],
    )
    def test_unknown_keys_are_left_out(self, extra: dict[str, Any]) -> None:
        assert NodesRequest(SLIM, ["n1", "n2"], None) == decode_args(args_of(**extra))

    def test_of_a_key_that_comes_twice_the_last_counts(self) -> None:
        body = b'{"Pod":%s,"NodeNames":["n1"],"NodeNames":["n2"]}' % encoded(POD)

        assert ["n2"] == decode_args(body).names


class TestPreemption:
    @recorded(PREEMPTIONS)
    def test_both_forms_of_a_recorded_request_read_as_the_meta_form(self, call: Call) -> None:
        found = decode_preemption(call.request)

        assert call.answered["NodeNameToMetaVictims"] == msgspec.to_builtins(found.victims)
        assert call.asked["Pod"]["metadata"]["uid"] == found.pod.uid

    @pytest.mark.parametrize("case", CASES)
    @recorded(PREEMPTIONS)
    def test_any_case_of_a_key_reads_the_same(self, call: Call, case: Callable[[str], str]) -> None:
        assert decode_preemption(call.request) == decode_preemption(encoded(recased(call.asked, case)))

    @pytest.mark.parametrize(
        ("fields", "victims"),
        [
            pytest.param({}, {}, id="no map at all"),
            pytest.param({"NodeNameToMetaVictims": {"n1": None}}, {}, id="null victims"),
            pytest.param({"NodeNameToMetaVictims": {"n1": {}}}, {}, id="victims without pods"),
            pytest.param({"NodeNameToMetaVictims": {"n1": {"Pods": None}}}, {}, id="a null list of pods"),
            pytest.param(
                {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "b"}, {"UID": "a"}], "NumPDBViolations": 1}}},
                {"n1": NodeVictims([VictimUid("b"), VictimUid("a")], 1)},
                id="their order stays",
            ),
            pytest.param(
                {"NodeNameToMetaVictims": {"n1": {"Pods": [None, {"UID": "a"}], "NumPDBViolations": None}}},
                {"n1": NodeVictims([VictimUid("a")], 0)},
                id="a null pod is none, a null count is 0",
            ),
            pytest.param(
                {"NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": "a"}, "spec": {"priority": 3}}]}}},
                {"n1": NodeVictims([VictimUid("a")], 0)},
                id="whole pods",
            ),
            pytest.param(
                {"NodeNameToMetaVictims": {"n1": {"pods": [{"uid": "a"}], "numPDBViolations": 2}}},
                {"n1": NodeVictims([VictimUid("a")], 2)},
                id="usual keys outside, camel keys inside",
            ),
            pytest.param(
                {"NodeNameToVictims": {"n1": {"pods": [{"metadata": {"uid": "a"}}], "extra": 1}}},
                {"n1": NodeVictims([VictimUid("a")], 0)},
                id="whole pods under camel keys, and an unknown key",
            ),
        ],
    )
    def test_victims(self, fields: dict[str, Any], victims: dict[str, NodeVictims]) -> None:
        assert PreemptionArgs(SLIM, victims) == decode_preemption(encoded({"Pod": POD, **fields}))

    def test_a_count_that_go_could_not_read_back_is_malformed(self) -> None:
        victims = {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 2**63}}

        with pytest.raises(MalformedRequest):
            decode_preemption(encoded({"Pod": POD, "NodeNameToMetaVictims": victims}))


class TestBinding:
    @recorded(BINDINGS)
    def test_a_recorded_request(self, call: Call) -> None:
        asked = call.asked

        assert BindingArgs(asked["PodNamespace"], asked["PodName"], asked["PodUID"], asked["Node"]) == decode_binding(
            call.request
        )

    @pytest.mark.parametrize("case", CASES)
    @recorded(BINDINGS)
    def test_any_case_of_a_key_reads_the_same(self, call: Call, case: Callable[[str], str]) -> None:
        assert decode_binding(call.request) == decode_binding(encoded(recased(call.asked, case)))

    def test_keys_of_other_verbs_are_left_out(self) -> None:
        body = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1", "Pod": {}, "NodeNames": 5}

        assert BindingArgs("d", "p", "u", "n1") == decode_binding(encoded(body))

    @pytest.mark.parametrize("field", ["PodName", "PodNamespace", "PodUID", "Node"])
    @pytest.mark.parametrize("value", ["", None])
    def test_every_field_must_be_given(self, field: str, value: str | None) -> None:
        """kube-scheduler always sends them: ``HTTPExtender.Bind`` in pkg/scheduler/extender.go."""
        body = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1", field: value}

        with pytest.raises(MalformedRequest, match=f"^{field} is empty$"):
            decode_binding(encoded(body))

    @pytest.mark.parametrize("field", ["PodName", "PodNamespace", "Node"])
    @pytest.mark.parametrize(("value", "told"), [("..", "'..'"), ("a/b", "'a/b'"), ("a\n", r"'a\n'")])
    def test_what_cannot_be_a_name_is_malformed(self, field: str, value: str, told: str) -> None:
        body = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1", field: value}

        with pytest.raises(MalformedRequest) as malformed:
            decode_binding(encoded(body))
        assert f"{field} is {told}, which cannot be a name" == str(malformed.value)


@pytest.mark.parametrize("decode", [decode_args, decode_preemption])
@pytest.mark.parametrize("field", ["name", "namespace"])
def test_a_pod_that_cannot_be_called_so_is_malformed(decode: Callable[[bytes], Any], field: str) -> None:
    pod = {**POD, "metadata": {**POD["metadata"], field: "../x"}}

    with pytest.raises(MalformedRequest, match=rf"^Pod\.metadata\.{field} is '\.\./x', which cannot be a name$"):
        decode(encoded({"Pod": pod, "NodeNames": ["n1"]}))


DEEP = b'{"Pod":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
DEEP_INSIDE = b'{"Pod":{"metadata":{"name":"p"},"spec":{"x":' + b'{"x":' * 50_000 + b"1" + b"}" * 50_003
BAD_UTF8 = args_of().replace(b'"web"', b'"\xff\xfe"')
BAD_NAME = args_of().replace(b'"n1"', b'"\xff\xfe"')


@pytest.mark.parametrize("decode", [decode_args, decode_preemption, decode_binding])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="an empty object"),
        pytest.param(b"{", id="cut short"),
        pytest.param(b'{"Pod":null,"PodName":null}', id="nulls"),
        pytest.param(b'{"Pod":5,"PodName":5}', id="numbers"),
        pytest.param(DEEP, id="nested without end"),
        pytest.param(DEEP_INSIDE, id="nested without end where nobody looks"),
        pytest.param(b'{"Pod\xff":1}', id="a key that is not UTF-8"),
    ],
)
def test_what_is_no_request_is_malformed(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(args_of(NodeNames=None), "neither NodeNames nor Nodes is given", id="no nodes in either form"),
        pytest.param(args_of(NodeNames="n1"), "NodeNames", id="names that are no list"),
        pytest.param(args_of(Pod={"spec": {}}), "metadata", id="a pod without metadata"),
        pytest.param(args_of(Pod={"metadata": {}, "spec": {}}), r"metadata.name: required", id="a pod without a name"),
        pytest.param(args_of(Pod=pod_object(priority=-(2**31) - 1)), "priority", id="a priority beyond 32 bits"),
        pytest.param(BAD_UTF8, "Pod: metadata.labels|utf-8", id="a label that is not UTF-8"),
        pytest.param(BAD_NAME, "utf-8", id="a name that is not UTF-8"),
    ],
)
def test_a_malformed_request_says_where(body: bytes, said: str) -> None:
    with pytest.raises(MalformedRequest, match=said):
        decode_args(body)


class TestAnswers:
    """Byte for byte what extender/v1 expects: PascalCase, every list there, nothing after the value."""

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            pytest.param(
                encode_filter({"n2": "no"}, ["n1"]),
                b'{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{},'
                b'"FailedAndUnresolvableNodes":{"n2":"no"},"Error":""}',
                id="filter by name",
            ),
            pytest.param(
                encode_filter_nodes({"n2": "no"}, [Raw(b'{"metadata":{"name":"n1"},"status":{"x":1}}')]),
                b'{"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1"},"status":{"x":1}}]},"NodeNames":null,'
                b'"FailedNodes":{},"FailedAndUnresolvableNodes":{"n2":"no"},"Error":""}',
                id="filter by whole nodes",
            ),
            pytest.param(
                encode_filter_error('homeport: "quoted" \u00fc'),
                '{"Nodes":null,"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},'
                '"Error":"homeport: \\"quoted\\" \u00fc"}'.encode(),
                id="filter cannot say",
            ),
            pytest.param(
                encode_priorities({"n2": 10, "n1": 0}),
                b'[{"Host":"n2","Score":10},{"Host":"n1","Score":0}]',
                id="prioritize, in the order given",
            ),
            pytest.param(
                encode_victims({"n1": NodeVictims([VictimUid("a"), VictimUid("b")], 1)}),
                b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"a"},{"UID":"b"}],"NumPDBViolations":1}}}',
                id="preempt",
            ),
            pytest.param(encode_binding(), b'{"Error":""}', id="bind"),
            pytest.param(encode_binding("no"), b'{"Error":"no"}', id="bind failed"),
        ],
    )
    def test_an_answer_byte_for_byte(self, answer: bytes, expected: bytes) -> None:
        assert expected == answer

    @pytest.mark.parametrize(
        "hosts",
        [
            pytest.param([], id="no host"),
            pytest.param(["n3", "n1", "n2", "n4"], id="several"),
            pytest.param(["n1", 'n"2', "n3"], id="a quotation mark"),
            pytest.param(["n1", "n\\2"], id="a backslash"),
            pytest.param(["n\n1", "n2"], id="a line break"),
            pytest.param(["knoten-ä", "n2"], id="a letter beyond ASCII"),
        ],
    )
    def test_scores_by_class_are_told_like_scores_by_host(self, hosts: list[str]) -> None:
        classes = [number % 2 for number in range(len(hosts))]
        scores = {0: 10, 1: 3}

        told = encode_classed(hosts, classes, scores)

        assert encode_priorities({host: scores[it] for host, it in zip(hosts, classes, strict=True)}) == told

    @recorded([call for call in ARGS if call.verb == "filter"])
    def test_the_recorded_filter_answer_has_the_fields_of_ours(self, call: Call) -> None:
        answered = call.answered
        ours: Any = json.loads(encode_filter(answered["FailedAndUnresolvableNodes"], answered["NodeNames"]))

        assert {**answered, "Nodes": None} == ours


@pytest.mark.parametrize("levels", [100_000])
@pytest.mark.parametrize("case", [str, str.upper], ids=["as usual", "in capitals"])
class TestDepth:
    """What the API server stores, a caller may send: it is refused as too deep, and read without its deep parts."""

    def body(self, case: Callable[[str], str], levels: int, **fields: Any) -> bytes:
        asked = json.loads(args_of(**fields))
        asked["Pod"]["metadata"]["managedFields"] = "DEEP"
        deep = b'{"f:a":' * levels + b"{}" + b"}" * levels
        return encoded(recased(asked, case)).replace(case("DEEP").encode().join([b'"'] * 2), deep)

    def test_names(self, case: Callable[[str], str], levels: int) -> None:
        body = self.body(case, levels)

        with pytest.raises(TooDeepRequest, match=r"^nested too deeply$"):
            decode_args(body)
        assert NodesRequest(SLIM, ["n1", "n2"], None) == decode_args(without_deep_parts(body))

    def test_victims(self, case: Callable[[str], str], levels: int) -> None:
        body = self.body(case, levels, NodeNames=None, Nodes=None)
        body = body.replace(b',"Nodes":null,"NodeNames":null', b"").replace(b',"NODES":null,"NODENAMES":null', b"")

        with pytest.raises(TooDeepRequest):
            decode_preemption(body)
        assert PreemptionArgs(SLIM, {}) == decode_preemption(without_deep_parts(body))
