"""Workloads, clusters and reports for the tests of lint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import yaml

from app.cache.cluster import Cluster
from app.feeds.saved import load_objects
from app.lint.facts import FACTS, ClusterFacts
from app.lint.linting import Linter, LintReport
from app.lint.live import CONFIG_MAPS, WORKLOADS
from app.lint.manifests import read_manifests
from app.lint.workloads import CORE
from app.runtime.registry import Registry
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import JsonObject

REGISTRY: Final = Registry(SHIPPED, DEFAULT_WEIGHTS)
WEB: Final = {"app": "web"}


def workload(
    *spread: JsonObject,
    kind: str = "Deployment",
    labels: JsonObject | None = None,
    annotations: JsonObject | None = None,
    pod_annotations: JsonObject | None = None,
    replicas: int | None = 3,
    more: JsonObject | None = None,
    **spec: Any,
) -> JsonObject:
    """An object of apps/v1 named ``web``. ``more`` is added to its spec, ``spec`` to that of its template."""
    of_pod = {
        "labels": WEB if labels is None else labels,
        **({"annotations": pod_annotations} if pod_annotations else {}),
    }
    template: JsonObject = {"metadata": of_pod, "spec": {**spec}}
    if spread:
        template["spec"]["topologySpreadConstraints"] = list(spread)
    own = {"template": template, **({} if replicas is None else {"replicas": replicas}), **(more or {})}
    metadata = {"name": "web", "annotations": annotations or {}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": own}


def cluster_of(*objects: JsonObject) -> Cluster:
    """A snapshot with these objects, as the command loads it."""
    cluster = Cluster(CORE)
    load_objects(objects, cluster, (), "test", optional=(*FACTS, *WORKLOADS, CONFIG_MAPS))
    return cluster


def linted(manifests: str | Sequence[JsonObject], cluster: Cluster | None = None) -> LintReport:
    """The report about manifests, written or as objects."""
    text = manifests if isinstance(manifests, str) else yaml.safe_dump_all(manifests, sort_keys=False)
    read = read_manifests(text, "web.yaml")
    linter = Linter(REGISTRY, None if cluster is None else ClusterFacts(cluster))
    linter.add_broken(read.broken)
    linter.add_manifests(read.objects)
    return linter.report()


def ids(manifests: str | Sequence[JsonObject], cluster: Cluster | None = None) -> list[str]:
    """The ids of what is found. Nothing is broken."""
    report = linted(manifests, cluster)
    assert report.broken == ()
    return [it.id for it in report.findings]
