"""Names as the API server takes them: RFC 1123 subdomains and labels, and segments of a path."""

from __future__ import annotations

import pytest

from app.kube.names import LONGEST, is_label, is_segment, is_subdomain, shown


@pytest.mark.parametrize(
    ("name", "subdomain", "label", "segment"),
    [
        pytest.param("web-1", True, True, True, id="a label"),
        pytest.param("a" * 63, True, True, True, id="the longest label"),
        pytest.param("a" * 64, True, False, True, id="longer than a label"),
        pytest.param("a" * LONGEST, True, False, True, id="the longest of all"),
        pytest.param("a" * (LONGEST + 1), False, False, False, id="longer than that"),
        pytest.param("", False, False, False, id="nothing"),
        pytest.param("Web", False, False, True, id="capitals, as roles may have them"),
        pytest.param("-web", False, False, True, id="a hyphen first"),
        pytest.param(".", False, False, False, id="this folder"),
        pytest.param("..", False, False, False, id="the folder above"),
        pytest.param("a/b", False, False, False, id="a slash"),
        pytest.param("a%2fb", False, False, False, id="an escaped one"),
        pytest.param("web\n", False, False, True, id="an end of line"),
    ],
)
def test_what_may_be_a_name(name: str, subdomain: bool, label: bool, segment: bool) -> None:
    assert (subdomain, label, segment) == (is_subdomain(name), is_label(name), is_segment(name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("a\n\x1bé", r"'a\n\x1b\xe9'", id="nothing unprintable"),
        pytest.param("a" * 64, f"'{'a' * 64}'", id="whole"),
        pytest.param("a" * 65, f"'{'a' * 64}...'", id="cut"),
    ],
)
def test_what_is_shown_of_it(name: str, expected: str) -> None:
    assert expected == shown(name)
