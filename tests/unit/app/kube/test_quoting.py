"""Rules of texts in quotes: what Go's ``%q`` says of them."""

import pytest

from app.kube.quoting import not_found, quoted, shortened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("data", '"data"', id="a name"),
        pytest.param("", '""', id="nothing"),
        pytest.param("da-ta.0", '"da-ta.0"', id="a name with signs"),
        pytest.param('a"b\\c', r'"a\"b\\c"', id="quotes and backslashes"),
        pytest.param("a\tb\nc\x00d\x7f", r'"a\tb\nc\x00d\x7f"', id="what controls a terminal"),
        pytest.param("\a\b\f\r\v", r'"\a\b\f\r\v"', id="what has a letter of its own"),
        pytest.param("é 世", '"é 世"', id="letters of others, and a blank"),
        pytest.param("\u00a0\u200b\U000e0001", r'"\u00a0\u200b\U000e0001"', id="what cannot be seen"),
    ],
)
def test_a_text_is_quoted_as_in_go(text: str, expected: str) -> None:
    assert expected == quoted(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("homeport-5d4f_6e1f", "homeport-5d4f_6e1f"),
        ("a\x1b[31m", r'"a\x1b[31m"'),
        ("é", '"é"'),
        ("\ud800", r'"\ud800"'),
        ("x" * 128, "x" * 128),
        ("x" * 50_000, f'"{"x" * 128}"…'),
    ],
)
def test_a_line_shows_a_plain_text_as_it_is_and_others_quoted_and_cut(text: str, expected: str) -> None:
    assert expected == shortened(text)


def test_what_is_not_there_is_told_in_the_words_of_client_go() -> None:
    assert 'persistentvolumeclaim "data" not found' == not_found("persistentvolumeclaim", "data")
