"""Rules of the words in which a field is wrong: those that Go prints."""

import pytest

from app.kube.field_errors import aggregate, invalid, label_key_flaws, label_value_flaws, not_supported

NO_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
NO_PREFIX = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NO_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("plain", '"plain"', id="a text"),
        pytest.param('a"b\\c', r'"a\"b\\c"', id="quotes and backslashes"),
        pytest.param("\n\t\x07\x1b\x7f", r'"\n\t\a\x1b\x7f"', id="control characters"),
        pytest.param("é\u00ad\u2028😀\U000e0001", r'"é\u00ad\u2028😀\U000e0001"', id="what is no ASCII"),
        pytest.param(["a", "<&>"], r'["a","\u003c\u0026\u003e"]', id="a list, as JSON that no browser takes for HTML"),
        pytest.param([], "[]", id="an empty list"),
        pytest.param(None, "null", id="no list at all"),
    ],
)
def test_a_value_is_shown_as_go_shows_it(value: str | list[str] | None, shown: str) -> None:
    assert f"path: Invalid value: {shown}: why" == invalid("path", value, "why")


def test_a_word_that_is_not_known_is_told_with_those_that_are() -> None:
    assert 'path: Unsupported value: "\\u003c": supported values: "In", "NotIn"' == not_supported(
        "path", "<", ("In", "NotIn")
    )


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(["a", "a"], "a", id="one, told twice"),
        pytest.param(["b", "a", "b"], "[b, a]", id="several, each once and in order"),
    ],
)
def test_several_errors_are_one(messages: list[str], expected: str) -> None:
    assert expected == aggregate(messages)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param("example.com/Disk_a.b-c", [], id="with a prefix"),
        pytest.param("", ["name part must be non-empty", NO_NAME], id="nothing"),
        pytest.param("-x", [NO_NAME], id="a name that begins badly"),
        pytest.param("é" * 32, ["name part must be no more than 63 bytes", NO_NAME], id="bytes count, not characters"),
        pytest.param("/x", ["prefix part must be non-empty"], id="an empty prefix"),
        pytest.param("Upper/x", [NO_PREFIX], id="a prefix in capitals"),
        pytest.param(f"{'x' * 254}/x", ["prefix part must be no more than 253 bytes"], id="a long prefix"),
        pytest.param(
            "a/b/c",
            [
                "a valid label key "
                + NO_NAME.removeprefix("name part ")
                + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ],
            id="three parts",
        ),
    ],
)
def test_the_flaws_of_a_key(key: str, expected: list[str]) -> None:
    assert expected == label_key_flaws(key)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("a_B.9", [], id="a value"),
        pytest.param("not ok!", [NO_VALUE], id="a space"),
        pytest.param("-" * 64, ["must be no more than 63 bytes", NO_VALUE], id="both"),
    ],
)
def test_the_flaws_of_a_value(value: str, expected: list[str]) -> None:
    assert expected == label_value_flaws(value)
