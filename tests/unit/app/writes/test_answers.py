"""Only an answer that is what was asked for counts, whatever its status code."""

from __future__ import annotations

import pytest

from app.kube.api_errors import ApiUnavailable
from app.kube.core_v1 import Node, Pod
from app.writes.answers import PodState, as_requested, is_success, pod_state
from tests.builders import JsonObject, encoded, make_node, make_pod, pod_object


def without(found: JsonObject, key: str) -> JsonObject:
    return {name: value for name, value in found.items() if name != key}


@pytest.mark.parametrize(
    ("answer", "namespace", "name", "said"),
    [
        (make_pod("web-1"), "default", "web-2", "requested default/web-2, the answer is about default/web-1"),
        (make_pod("web-1"), "shop", "web-1", "requested shop/web-1, the answer is about default/web-1"),
        (make_node("n1"), "", "n2", "requested n2, the answer is about n1"),
    ],
)
def test_another_one(answer: Pod | Node, namespace: str, name: str, said: str) -> None:
    with pytest.raises(ApiUnavailable, match=f"^{said}$"):
        as_requested(answer, namespace, name)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}', True),
        (b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":409}', False),
        (b'{"kind":"Pod","status":{"phase":"Pending"}}', False),
        (b'{"status":"Success"}', False),
        (b'"Success"', False),
        (b"<html>Success</html>", False),
        (b"", False),
    ],
)
def test_only_a_status_that_says_so_is_a_success(raw: bytes, expected: bool) -> None:
    assert expected is is_success(raw)


class TestPodState:
    @pytest.mark.parametrize("node", ["", "n1"])
    def test_of_a_pod(self, node: str) -> None:
        raw = encoded(pod_object("web-1", uid="u", resource_version="7", node=node))

        assert PodState("u", "7", node) == pod_state(raw, make_pod("web-1"))

    def test_content_that_cannot_be_decoded_does_not_matter(self) -> None:
        raw = encoded(pod_object("web-1")).replace(b'"labels":{', b'"labels":5,"were":{')

        assert "1" == pod_state(raw, make_pod("web-1")).resource_version

    @pytest.mark.parametrize(
        "raw",
        [
            pytest.param(b"<html>", id="a page"),
            pytest.param(b"{}", id="an object"),
            pytest.param(encoded(pod_object("web-2")), id="another pod"),
            pytest.param(encoded(pod_object("web-1", namespace="shop")), id="a pod elsewhere"),
            pytest.param(encoded({**pod_object("web-1"), "kind": "Table"}), id="another kind"),
            pytest.param(encoded(without(pod_object("web-1"), "spec")), id="metadata alone"),
            pytest.param(encoded(pod_object("web-1", uid="")), id="without a UID"),
            pytest.param(encoded(pod_object("web-1", resource_version="")), id="without a version"),
        ],
    )
    def test_whatever_else_is_no_answer(self, raw: bytes) -> None:
        with pytest.raises(ApiUnavailable):
            pod_state(raw, make_pod("web-1"))
