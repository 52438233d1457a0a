"""An answer about another object than the one asked for is none."""

from __future__ import annotations

import pytest

from app.kube.api_errors import ApiUnavailable
from app.writes.answers import as_asked
from tests.builders import make_node, make_pod


def test_the_one_asked_for() -> None:
    pod = make_pod("web-1")

    assert pod is as_asked(pod, "default", "web-1")


@pytest.mark.parametrize(
    ("namespace", "name"),
    [pytest.param("default", "web-2", id="another"), pytest.param("shop", "web-1", id="elsewhere")],
)
def test_another_one(namespace: str, name: str) -> None:
    with pytest.raises(ApiUnavailable, match=rf"^asked for {namespace}/{name}, was answered default/web-1$"):
        as_asked(make_pod("web-1"), namespace, name)


def test_one_without_a_namespace_is_told_without_one() -> None:
    with pytest.raises(ApiUnavailable, match=r"^asked for n2, was answered n1$"):
        as_asked(make_node("n1"), "", "n2")
