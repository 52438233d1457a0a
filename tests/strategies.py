"""Hypothesis strategies: small clusters in which everything collides, as JSON objects.

Few names, labels and zones, so that moving, renaming and relabelling hit the same things again and again.
"""

from __future__ import annotations

from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.builders import (
    HOSTNAME,
    ZONE,
    JsonObject,
    constraint,
    container,
    expression,
    node_object,
    pod_object,
    required_affinity,
    service_object,
    taint,
    term,
    toleration,
)

RACK: Final = "example.com/rack"
NODES: Final = ("n1", "n2", "n3", "n4")
NAMESPACES: Final = ("default", "shop")
KEYS: Final = (ZONE, HOSTNAME, RACK)


def examples(of_long: int) -> int:
    """Return how many examples to try: ``of_long`` under the profile ``long`` of tests/conftest.py, else its share."""
    return of_long * settings().max_examples // settings.get_profile("long").max_examples


rarely: Final = st.sampled_from((False,) * 7 + (True,))

labels: Final[SearchStrategy[dict[str, str]]] = st.sampled_from(
    (
        {"app": "web"},
        {"app": "web", "rev": "1"},
        {"app": "web", "rev": "2"},
        {"app": "web", "rev": "1", "tier": "front"},
        {"app": "db", "rev": "1"},
        {},
    )
)

_EXPRESSIONS: Final = (
    expression("app", "In", "web", "db"),
    expression("app", "NotIn", "db"),
    expression("app", "Exists"),
    expression("rev", "Exists"),
    expression("tier", "DoesNotExist"),
    expression("rev", "In", "2"),
)

selectors: Final[SearchStrategy[JsonObject]] = st.builds(
    lambda pairs, expressions: {"matchLabels": pairs, "matchExpressions": expressions},
    st.sampled_from(({"app": "web"}, {"app": "web"}, {"app": "web", "rev": "1"}, {})),
    st.one_of(st.just([]), st.lists(st.sampled_from(_EXPRESSIONS), max_size=2)),
)

taints: Final[SearchStrategy[list[JsonObject]]] = st.sampled_from(
    ([], [], [], [taint("x")], [taint("y", "NoExecute")], [taint("z", "PreferNoSchedule")], [taint("x"), taint("y")])
)
tolerations: Final = st.lists(st.sampled_from((toleration("x"), toleration("y"), toleration())), max_size=1)

node_labels: Final[SearchStrategy[dict[str, str]]] = st.sampled_from(
    (
        {RACK: "r1", "disk": "ssd"},
        {RACK: "r2", "disk": "ssd"},
        {RACK: "r1", "disk": "hdd"},
        {RACK: "r2"},
        {"disk": "ssd"},
    )
)


IMAGES: Final = ("example/web:1", "example/web:2", "example/db:1")

_statuses: Final[SearchStrategy[JsonObject]] = st.builds(
    lambda cpu, images: {
        "allocatable": {"cpu": cpu, "pods": "110"},
        "images": [{"names": [name], "sizeBytes": 1 << 20} for name in images],
    },
    st.sampled_from(("2", "4")),
    st.lists(st.sampled_from(IMAGES), unique=True),
)

containers: Final[SearchStrategy[list[JsonObject]]] = st.lists(
    st.sampled_from(
        (
            container(),
            container(requests={"cpu": "100m"}),
            container(requests={"cpu": "250m", "memory": "64Mi"}, image=IMAGES[0]),
            container(requests={"memory": "0"}, ports=[{"hostPort": 80}]),
            container(requests={"cpu": "7m"}, ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 81}]),
        )
    ),
    min_size=1,
    max_size=2,
)


def nodes(name: SearchStrategy[str]) -> SearchStrategy[JsonObject]:
    """Nodes in two or three zones or none, some without a hostname, some cordoned."""
    return st.builds(
        lambda name, zone, nameless, more, taints, cordoned, status: node_object(
            name,
            zone=zone,
            hostname=None if nameless else name,
            labels=more,
            taints=taints,
            unschedulable=cordoned,
            status=status,
        ),
        name,
        st.sampled_from(("a", "a", "b", "b", "c", None)),
        rarely,
        node_labels,
        taints,
        rarely,
        _statuses,
    )


affinities: Final[SearchStrategy[JsonObject | None]] = st.sampled_from(
    (
        None,
        None,
        None,
        required_affinity(term(expression("disk", "In", "ssd"))),
        required_affinity(term(expression(RACK, "Exists")), term(fields=[expression("metadata.name", "In", "n1")])),
        required_affinity(),
    )
)
node_selectors: Final[SearchStrategy[dict[str, str]]] = st.sampled_from(({}, {}, {"disk": "ssd"}))

constraints: Final[SearchStrategy[JsonObject]] = st.builds(
    lambda key, soft, skew, selector, min_domains, affinity, taints, keys: constraint(
        key,
        soft=soft,
        skew=skew,
        selector=selector,
        min_domains=None if soft else min_domains,
        affinity_policy=affinity,
        taints_policy=taints,
        match_label_keys=keys,
    ),
    st.sampled_from(KEYS),
    st.booleans(),
    st.integers(1, 3),
    st.one_of(selectors, selectors, selectors, selectors, st.none(), st.just({})),
    st.sampled_from((None, None, 1, 2, 4)),
    st.sampled_from((None, "Honor", "Ignore")),
    st.sampled_from((None, "Honor", "Ignore")),
    st.sampled_from((None, ["rev"])),
)

hard_constraints: Final = constraints.map(
    lambda found: {**found, "whenUnsatisfiable": "DoNotSchedule"},
)

pending_pods: Final[SearchStrategy[JsonObject]] = st.builds(
    lambda labels, spread, tolerations, affinity, selector: pod_object(
        "pending",
        labels=labels,
        spread=spread,
        tolerations=tolerations,
        affinity=affinity or {},
        node_selector=selector,
    ),
    labels,
    st.lists(constraints, max_size=3),
    tolerations,
    affinities,
    node_selectors,
)


def running_pods(count: int) -> SearchStrategy[list[JsonObject]]:
    """Up to ``count`` pods, most of them on a node, some of them not to be counted."""
    one = st.builds(
        lambda namespace, labels, node, terminating, phase: {
            "namespace": namespace,
            "labels": labels,
            "node": node,
            "terminating": terminating,
            "phase": phase,
        },
        st.sampled_from(("default", "default", "default", "shop")),
        labels,
        st.sampled_from((*NODES, *NODES, *NODES, "gone")),
        rarely,
        rarely.map(lambda failed: "Failed" if failed else "Running"),
    )
    return st.lists(one, max_size=count).map(
        lambda found: [pod_object(f"running-{number}", **fields) for number, fields in enumerate(found)]
    )


@st.composite
def clusters(draw: st.DrawFn, pods: int = 12) -> list[JsonObject]:
    """The objects of a small cluster."""
    names = draw(st.lists(st.sampled_from(NODES), unique=True, min_size=2))
    services = [service_object("svc", draw(labels))] if draw(st.booleans()) else []
    return [*(draw(nodes(st.just(name))) for name in names), *draw(running_pods(pods)), *services]
