"""Pods of manifests: whatever the JSON, there are pods or a ``TemplateError``, and never another exception."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from app.cache.cluster import Cluster
from app.whatif.simulated import ManifestPods, TemplateError
from app.whatif.templates import pods_of, scaled
from tests.builders import JsonObject, constraint, container, toleration
from tests.strategies import examples
from tests.unit.app.whatif.manifests import MOST, NOW, cluster_of, machine, manifest

TERM: Final = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["app"]}
POD: Final[JsonObject] = {
    "affinity": {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM}]
        },
    },
    "containers": [container(resources={"limits": {"cpu": "1"}}, ports=[{"containerPort": 80}])],
    "hostNetwork": True,
    "priorityClassName": "high",
    "resources": {"limits": {"cpu": "2"}},
    "runtimeClassName": "kata",
    "tolerations": [toleration("gpu")],
    "topologySpreadConstraints": [constraint(app="web", match_label_keys=["app"])],
    "volumes": [{"name": "data", "emptyDir": {}}],
}
CLAIM: Final = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
DOMAIN: Final = {
    "cpu": {"cores": 2, "dedicatedCpuPlacement": True},
    "devices": {"gpus": [{"deviceName": "a/b"}]},
    "memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}},
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}},
}
CLASS: Final = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 3,
}
WHOLE: Final = (
    *(manifest(it, more={"replicas": 2}, **POD) for it in ("Deployment", "ReplicaSet")),
    manifest("ReplicationController", more={"replicas": 2, "selector": {"app": "web"}}, **POD),
    manifest("StatefulSet", more={"ordinals": {"start": 1}, "volumeClaimTemplates": [CLAIM]}, **POD),
    manifest("Job", more={"parallelism": 2, "completions": 3, "completionMode": "Indexed"}, **POD),
    manifest("CronJob", more={"parallelism": 2}, **POD),
    machine(domain=DOMAIN, volumes=[{"name": "d", "dataVolume": {"name": "disk"}}]),
    {"apiVersion": "v1", "kind": "List", "items": [manifest(**POD)]},
    CLASS,
)

_TEXTS: Final = st.sampled_from(("", "web", "data", "1", "-1", "1e999", "Web", "a/b/c", "\x00", "\ud800", "x" * 300))
_LEAVES: Final = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _TEXTS, st.text(max_size=9))
VALUES: Final[SearchStrategy[Any]] = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=9), inner, max_size=2)
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts of a value, except the value itself."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in parts for place in ((*at, key), *places(inner, (*at, key)))]


@st.composite
def mutated(draw: st.DrawFn) -> JsonObject:
    """Return a complete manifest in which some parts are replaced or missing."""
    obj: Any = copy.deepcopy(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(places(obj) or [("kind",)]))
        inner = obj
        for key in parents:
            inner = inner[key]
        inner[last] = draw(VALUES)
    return dict(obj)


@pytest.mark.parametrize("obj", WHOLE, ids=lambda it: str(it["kind"]))
def test_the_complete_manifests_are_right(obj: JsonObject) -> None:
    """Else the mutations would test only the first check."""
    found = pods_of([CLASS, obj] if obj is not CLASS else [obj], cluster_of(), "default", MOST, NOW)

    assert bool(found.added) == (obj is not CLASS)


def answered(objects: list[Any], cluster: Cluster) -> ManifestPods | TemplateError:
    try:
        return pods_of(objects, cluster, "default", MOST, NOW)
    except TemplateError as error:
        return error


@settings(max_examples=examples(4000))
@given(st.lists(mutated() | VALUES, min_size=1, max_size=2))
def test_any_json_gives_pods_or_a_template_error(objects: list[Any]) -> None:
    cluster = cluster_of()
    found = answered(objects, cluster)
    if isinstance(found, TemplateError):
        assert -1 < found.index < len(objects)
        assert str(found).isprintable()
    else:
        assert len(found.added) <= MOST
        assert len(found.added) == len({it.pod.uid for it in found.added}) == len({it.pod.key for it in found.added})
    with suppress(TemplateError):
        scaled(cluster, "shop", "Deployment", "web", 2, objects, NOW)
