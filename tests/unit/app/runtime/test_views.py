"""What a plugin that does not read the cluster sees of a pod."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import pytest

from app.framework.parts import Part, paths_of_pod
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra
from app.runtime.views import DeclaredParts, Undeclared
from tests.builders import controller, encoded, pod_object

FIELDS: Final[dict[str, Any]] = {
    "labels": {"app": "web"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "annotations": {"homeport.dev/home": "n1"},
    "owner": controller("ReplicaSet", "web"),
    "node_selector": {"disk": "ssd"},
    "priority": 7,
}


ALL: Final = core_v1(tuple(Extra))


def pod(name: str = "web-1", **changed: Any) -> Pod:
    """With all parts decoded."""
    return ALL.decode_pod(encoded(pod_object(name, **{**FIELDS, **changed})))


@pytest.mark.parametrize("part", [it for it in Part if paths_of_pod([it])], ids=lambda part: part.name)
def test_each_part_is_where_its_path_says(part: Part) -> None:
    found: Any = pod()
    seen: Any = DeclaredParts([part]).view(found)
    for name in part.value.split("."):
        found, seen = getattr(found, name), getattr(seen, name)

    assert found == seen


def test_a_part_of_nodes_is_none_of_a_pod() -> None:
    seen = DeclaredParts([Part.LABELS, Part.NODE_STATE])

    assert pod().labels == seen.view(pod()).labels
    assert seen.signature(pod()) == DeclaredParts([Part.LABELS]).signature(pod())


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        pytest.param([Part.LABELS], "namespace", id="another part"),
        pytest.param([Part.LABELS], "spec.affinity", id="the spec"),
        pytest.param([Part.TOLERATIONS], "spec.affinity", id="another part of the spec"),
        pytest.param(None, "name", id="of all parts the name"),
        pytest.param(None, "uid", id="of all parts the UID"),
        pytest.param(None, "key", id="what is made of the name"),
    ],
)
def test_another_one_is_a_fault_that_names_it(parts: list[Part] | None, path: str) -> None:
    seen = DeclaredParts(parts).view(pod())

    with pytest.raises(Undeclared, match=f"read pod.{path}, which it does not declare"):
        attrgetter(path)(seen)


def test_nothing_can_be_changed() -> None:
    seen: Any = DeclaredParts([Part.LABELS]).view(pod())

    with pytest.raises(AttributeError, match="not to be changed"):
        seen.labels = {}


@pytest.mark.parametrize(
    ("parts", "changed", "same"),
    [
        pytest.param([Part.TOLERATIONS], {"labels": {"app": "db"}}, True, id="what it does not read"),
        pytest.param([Part.TOLERATIONS], {"tolerations": []}, False, id="what it reads"),
        pytest.param([Part.LABELS, Part.PRIORITY], {"priority": 8}, False, id="one of two"),
        pytest.param([], {"labels": {"app": "db"}, "tolerations": []}, True, id="nothing at all"),
        pytest.param(None, {"annotations": {"homeport.dev/home": "n2"}}, False, id="an annotation of ours"),
        pytest.param(None, {"uid": "another"}, True, id="the UID"),
        pytest.param([Part.TOLERATIONS], {"affinity": {"x": "x" * (64 << 10)}}, False, id="a part that is too long"),
    ],
)
def test_equal_signatures_are_equal_parts(parts: list[Part] | None, changed: dict[str, Any], same: bool) -> None:
    signature = DeclaredParts(parts).signature

    assert signature(pod()) == signature(pod("web-2"))
    assert same is (signature(pod()) == signature(pod("web-2", **changed)))
    assert isinstance(hash(signature(pod(**changed))), int)
