"""Rules of ``nodeSelector`` and required node affinity: which nodes a pod may run on."""

import pytest

from app.kube.node_affinity import (
    ANY_NODE,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredNodeAffinity,
    PreferredNodeTerm,
    RequiredNodeAffinity,
    is_int64,
)
from tests.builders import JsonObject, expression, make_pod, required_affinity, term

LABELS = {"disk": "ssd", "cores": "16", "empty": ""}
NAME = "n1"


def affinity(*terms: JsonObject, **node_selector: str) -> RequiredNodeAffinity:
    if terms:
        return make_pod(affinity=required_affinity(*terms), node_selector=node_selector).spec.affinity
    return make_pod(node_selector=node_selector).spec.affinity


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        pytest.param(expression("disk", "In", "hdd", "ssd"), True, id="In: one of them"),
        pytest.param(expression("gpu", "In", "yes"), False, id="In: an absent label"),
        pytest.param(expression("disk", "NotIn", "hdd"), True, id="NotIn: none of them"),
        pytest.param(expression("disk", "NotIn", "ssd"), False, id="NotIn: one of them"),
        pytest.param(expression("gpu", "NotIn", "yes"), True, id="NotIn: an absent label matches"),
        pytest.param(expression("gpu", "Exists"), False, id="Exists: it does not"),
        pytest.param(expression("gpu", "DoesNotExist"), True, id="DoesNotExist: it does not"),
        pytest.param(expression("cores", "Gt", "16"), False, id="Gt: equal is not greater"),
        pytest.param(expression("cores", "Lt", "16"), False, id="Lt: equal is not less"),
        pytest.param(expression("cores", "Gt", "9"), True, id="Gt compares numbers, not texts"),
        pytest.param(expression("gpu", "Gt", "0"), False, id="Gt: an absent label"),
        pytest.param(expression("disk", "Gt", "0"), False, id="Gt: a label that is no number"),
        pytest.param(expression("cores", "Lt", str(2**63 - 1)), True, id="Lt: the largest number there is"),
    ],
)
def test_an_expression_reads_one_label(requirement: JsonObject, expected: bool) -> None:
    assert expected is affinity(term(requirement)).matches(NAME, LABELS)


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param(expression("disk", "In"), id="In without values"),
        pytest.param(expression("gpu", "DoesNotExist", "yes"), id="DoesNotExist with a value"),
        pytest.param(expression("cores", "Gt", "1", "2"), id="Gt with two values"),
        pytest.param(expression("cores", "Lt", "9" * 5000), id="Lt with a number Python will not read"),
        pytest.param(expression("disk", "Is", "ssd"), id="an operator there is none of"),
        pytest.param(expression("", "DoesNotExist"), id="an empty key"),
        pytest.param(expression("disk", "NotIn", "no value"), id="a value no label can have"),
        pytest.param({"key": None, "operator": None, "values": None}, id="nothing but nulls"),
    ],
)
def test_a_term_that_cannot_be_parsed_matches_nothing(malformed: JsonObject) -> None:
    assert not affinity(term(malformed)).matches(NAME, LABELS)
    assert not affinity(term(expression("disk", "Exists"), malformed)).matches(NAME, LABELS)
    assert affinity(term(malformed), term(expression("disk", "Exists"))).matches(NAME, LABELS)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param(expression("metadata.name", "In", "n2"), False, id="In: another node"),
        pytest.param(expression("metadata.name", "NotIn", NAME), False, id="NotIn: this node"),
        pytest.param(expression("metadata.name", "In", NAME, "n2"), False, id="two values are one too many"),
        pytest.param(expression("metadata.name", "Exists"), False, id="only In and NotIn exist for fields"),
        pytest.param(expression("spec.other", "In", NAME), False, id="a field nodes do not have is empty"),
        pytest.param(expression("spec.other", "NotIn", NAME), True, id="an empty field is not this name"),
    ],
)
def test_match_fields_read_the_name(field: JsonObject, expected: bool) -> None:
    assert expected is affinity(term(fields=[field])).matches(NAME, LABELS)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            affinity(term(expression("disk", "Exists"), expression("gpu", "Exists"))),
            False,
            id="the expressions of a term are ANDed",
        ),
        pytest.param(
            affinity(term(expression("gpu", "Exists")), term(expression("disk", "Exists"))), True, id="terms are ORed"
        ),
        pytest.param(
            affinity(term(expression("disk", "Exists"), fields=[expression("metadata.name", "In", "n2")])),
            False,
            id="expressions and fields of a term are ANDed",
        ),
        pytest.param(affinity(term(), term(expression("disk", "Exists"))), True, id="an empty term is passed over"),
        pytest.param(
            make_pod(affinity=required_affinity()).spec.affinity, False, id="an empty list of terms matches nothing"
        ),
        pytest.param(affinity(disk="hdd"), False, id="nodeSelector: another value"),
        pytest.param(affinity(disk="ssd", gpu=""), False, id="nodeSelector: an absent label is not an empty one"),
        pytest.param(
            affinity(term(expression("cores", "Exists")), disk="hdd"), False, id="nodeSelector and affinity are ANDed"
        ),
        pytest.param(ANY_NODE, True, id="a pod that asks for nothing may run anywhere"),
    ],
)
def test_what_a_pod_demands_of_a_node(found: RequiredNodeAffinity, expected: bool) -> None:
    assert expected is found.matches(NAME, LABELS)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="an empty affinity"),
        pytest.param({"nodeAffinity": None}, id="a null node affinity"),
        pytest.param({"nodeAffinity": {}}, id="only preferences, which nobody reads"),
    ],
)
def test_an_affinity_that_requires_nothing_is_none(given: JsonObject) -> None:
    assert ANY_NODE is make_pod(affinity=given).spec.affinity


def test_the_answer_depends_on_the_labels_that_are_named() -> None:
    found = affinity(
        term(expression("a", "Exists"), fields=[expression("metadata.name", "In", NAME)]),
        term(expression("b", "Gt", "1"), expression("a", "In", "x")),
        c="d",
    )

    assert {"a", "b", "c"} == found.label_keys()


def name_field(*names: str, operator: str = "In") -> JsonObject:
    return expression("metadata.name", operator, *names)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([], None, id="no terms"),
        pytest.param([term(fields=[name_field("a")]), term(fields=[name_field("b")])], {"a", "b"}, id="a name each"),
        pytest.param([term(fields=[name_field("a", "b"), name_field("b")])], {"b"}, id="what all fields name"),
        pytest.param([term(fields=[name_field("a"), name_field("b")])], set(), id="fields that contradict each other"),
        pytest.param([term(fields=[name_field("a")]), term()], None, id="a term that names none"),
        pytest.param([term(fields=[name_field("a", operator="NotIn")])], None, id="NotIn names nobody"),
        pytest.param([term(fields=[expression("metadata.namespace", "In", "a")])], None, id="another field"),
    ],
)
def test_terms_may_name_the_nodes(terms: list[JsonObject], expected: set[str] | None) -> None:
    required = make_pod(affinity=required_affinity(*terms)).spec.affinity

    assert expected == required.names()
    assert ANY_NODE.names() is None


def test_a_node_is_worth_the_weights_of_the_terms_that_match() -> None:
    ssd, big = NodeSelectorRequirement("disk", "In", ("ssd",)), NodeSelectorRequirement("cores", "Gt", ("15",))
    named = NodeSelectorTerm((), (NodeSelectorRequirement("metadata.name", "In", (NAME,)),))
    wishes = (
        PreferredNodeTerm(3, NodeSelectorTerm((ssd,))),
        PreferredNodeTerm(5, NodeSelectorTerm((ssd, big))),
        PreferredNodeTerm(3, NodeSelectorTerm((ssd,))),
        PreferredNodeTerm(-1, named),
    )

    preferences = PreferredNodeAffinity(wishes).compiled()

    assert [10, 11, 5, 0] == [
        preferences.score(name, labels)
        for name, labels in ((NAME, LABELS), ("n2", LABELS), (NAME, {"disk": "ssd"}), ("n2", {"cores": "20"}))
    ]
    assert 0 == PreferredNodeAffinity().compiled().score(NAME, LABELS)


@pytest.mark.parametrize(("text", "expected"), [("7", True), ("-7", True), ("x", False), (str(2**63), False)])
def test_a_bound_is_a_number_of_64_bits(text: str, expected: bool) -> None:
    assert expected is is_int64(text)
