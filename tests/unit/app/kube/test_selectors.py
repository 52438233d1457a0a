"""Rules of label selectors: what they match, their canonical form, and which are none."""

import pytest

from app.kube.labels import label_set
from app.kube.selectors import (
    DOES_NOT_EXIST,
    EVERYTHING,
    EXISTS,
    IN,
    NOT_IN,
    InvalidSelector,
    Requirement,
    Selector,
    decode_selector,
    is_label_key,
    is_label_value,
    of_labels,
    parse_selector,
    requirement,
    selector,
)
from tests.builders import JsonObject, encoded, expression

LABELS = label_set({"app": "web", "tier": "front"})


def parsed(**fields: object) -> Selector:
    found = decode_selector(encoded(fields))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        pytest.param([("app", IN, "db", "web")], True, id="In: the value is one of them"),
        pytest.param([("app", IN, "db")], False, id="In: the value is none of them"),
        pytest.param([("zone", IN, "a")], False, id="In: an absent key does not match"),
        pytest.param([("app", NOT_IN, "db", "web")], False, id="NotIn: the value is one of them"),
        pytest.param([("zone", NOT_IN, "a")], True, id="NotIn: an absent key matches"),
        pytest.param([("app", EXISTS)], True, id="Exists: the key is there"),
        pytest.param([("zone", EXISTS)], False, id="Exists: the key is absent"),
        pytest.param([("zone", DOES_NOT_EXIST)], True, id="DoesNotExist: the key is absent"),
        pytest.param([("app", DOES_NOT_EXIST)], False, id="DoesNotExist: the key is there"),
        pytest.param([("app", IN, "web"), ("tier", EXISTS)], True, id="all requirements hold"),
        pytest.param([("app", IN, "web"), ("zone", EXISTS)], False, id="one requirement of two does not hold"),
        pytest.param([], True, id="no requirements match everything"),
    ],
)
def test_a_selector_matches_if_all_its_requirements_hold(requirements: list[tuple[str, ...]], expected: bool) -> None:
    found = selector(requirement(key, operator, values) for key, operator, *values in requirements)

    assert expected is found.matches(LABELS)


def test_an_empty_value_is_a_value() -> None:
    assert parsed(matchLabels={"app": ""}).matches({"app": ""})
    assert not parsed(matchLabels={"app": ""}).matches({})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            {"matchLabels": {"app": "web"}},
            {"matchExpressions": [expression("app", "In", "web")]},
            id="a label is an In expression with one value",
        ),
        pytest.param(
            {"matchExpressions": [expression("app", "In", "b", "a", "b")]},
            {"matchExpressions": [expression("app", "In", "a", "b")]},
            id="values are sorted and unique",
        ),
        pytest.param(
            {"matchExpressions": [expression("b", "Exists"), expression("a", "Exists"), expression("b", "Exists")]},
            {"matchExpressions": [expression("a", "Exists"), expression("b", "Exists")]},
            id="requirements are sorted and unique",
        ),
        pytest.param({"matchLabels": None, "matchExpressions": None}, {}, id="null parts are empty parts"),
        pytest.param({"matchLabels": {"app": None}}, {"matchLabels": {"app": ""}}, id="a null value is empty"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "Exists", "values": None}]},
            {"matchExpressions": [expression("app", "Exists")]},
            id="null values are no values",
        ),
    ],
)
def test_selectors_that_say_the_same_are_equal(one: JsonObject, other: JsonObject) -> None:
    """Equal selectors share one kept count."""
    assert parsed(**one) == parsed(**other)
    assert hash(parsed(**one)) == hash(parsed(**other))


def test_the_canonical_form_is_a_sorted_conjunction() -> None:
    found = parsed(matchLabels={"tier": "front"}, matchExpressions=[expression("app", "NotIn", "b", "a")])

    expected = Selector((Requirement("app", NOT_IN, ("a", "b")), Requirement("tier", IN, ("front",))))
    assert expected == found


def test_null_and_empty_selectors_are_different_things() -> None:
    assert None is decode_selector(b"null")
    assert EVERYTHING == decode_selector(b"{}")


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        pytest.param(
            {"matchExpressions": [expression("app", "In")]},
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            id="In without values",
        ),
        pytest.param(
            {"matchExpressions": [expression("app", "Exists", "web")]},
            "values: Invalid value: values set must be empty for exists and does not exist",
            id="Exists with a value",
        ),
        pytest.param(
            {"matchExpressions": [expression("app", "Gt", "1")]},
            '"Gt" is not a valid label selector operator',
            id="Gt compares nodes, not pods",
        ),
        pytest.param({"matchLabels": {"": "web"}}, "key: Invalid value: '': not a valid label key", id="an empty key"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": None}]},
            '"" is not a valid label selector operator',
            id="a null operator is an empty operator",
        ),
        pytest.param(
            {"matchExpressions": [expression("app", "In", "web", "-")]},
            "values: Invalid value: '-': not a valid label value",
            id="one bad value among good ones",
        ),
    ],
)
def test_a_selector_that_cannot_be_parsed_says_why(found: JsonObject, complaint: str) -> None:
    with pytest.raises(InvalidSelector) as raised:
        decode_selector(encoded(found))

    assert complaint == str(raised.value)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param("a", True, id="one character"),
        pytest.param("example.com/app", True, id="a name with a domain"),
        pytest.param("x" * 63, True, id="63 characters"),
        pytest.param(f"{'x' * 253}/app", True, id="a domain of 253 characters"),
        pytest.param("", False, id="nothing"),
        pytest.param("x" * 64, False, id="64 characters"),
        pytest.param(f"{'x' * 254}/app", False, id="a domain of 254 characters"),
        pytest.param("-app", False, id="a dash in front"),
        pytest.param("app.", False, id="a dot at the end"),
        pytest.param("a/b/c", False, id="two slashes"),
        pytest.param("Example.com/app", False, id="capitals in the domain"),
        pytest.param("app\n", False, id="a line break at the end"),
        pytest.param("äpp", False, id="a letter beyond ASCII"),
    ],
)
def test_a_label_key_is_a_qualified_name(key: str, expected: bool) -> None:
    assert expected is is_label_key(key)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("", True, id="nothing"),
        pytest.param("web-1_a.b", True, id="dashes, underscores and dots within"),
        pytest.param("x" * 63, True, id="63 characters"),
        pytest.param("x" * 64, False, id="64 characters"),
        pytest.param("_web", False, id="an underscore in front"),
        pytest.param("web\n", False, id="a line break at the end"),
    ],
)
def test_a_label_value_is_short_and_begins_and_ends_alphanumeric(value: str, expected: bool) -> None:
    assert expected is is_label_value(value)


def test_pairs_are_added_with_and() -> None:
    found = parsed(matchLabels={"app": "web"}).with_labels([("hash", "1"), ("app", "web")])

    assert selector([Requirement("app", IN, ("web",)), Requirement("hash", IN, ("1",))]) == found


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, EVERYTHING, id="an empty map matches everything"),
        pytest.param({"app": "web"}, Selector((Requirement("app", IN, ("web",)),)), id="a pair must be there"),
        pytest.param({"a b": "!"}, Selector((Requirement("a b", IN, ("!",)),)), id="nothing is validated"),
    ],
)
def test_a_service_selector_is_a_plain_map(labels: dict[str, str | None], expected: Selector) -> None:
    assert expected == of_labels(labels)


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("app=web", {"app": "web"}, {"app": "api"}),
        ("app==web", {"app": "web"}, {}),
        ("app!=web", {}, {"app": "web"}),
        ("app in (web, api)", {"app": "api"}, {"app": "db"}),
        ("app notin (web,api)", {"app": "db"}, {"app": "api"}),
        ("app", {"app": ""}, {}),
        ("!app", {}, {"app": "web"}),
        ("app=", {"app": ""}, {"app": "web"}),
        (" app = web , tier in (a) ,!canary", {"app": "web", "tier": "a"}, {"app": "web", "tier": "a", "canary": ""}),
        ("example.com/app=web", {"example.com/app": "web"}, {}),
    ],
)
def test_selectors_in_the_notation_of_kubectl(text: str, matching: dict[str, str], other: dict[str, str]) -> None:
    assert (True, False) == (parse_selector(text).matches(matching), parse_selector(text).matches(other))


@pytest.mark.parametrize(
    "text", ["a=b=c", "a,,b", "a in b", "a in ()x", "=b", "a>1", "a b", "(a)", "-a=b", "a=" + "x" * 5000]
)
def test_what_is_not_a_selector(text: str) -> None:
    with pytest.raises(InvalidSelector):
        parse_selector(text)
