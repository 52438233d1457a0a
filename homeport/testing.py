"""Helpers to test a plugin without a cluster. They create pods, nodes and handles, and run a plugin on YAML manifests.

``docs/plugins/first-filter.md`` shows how to use the helpers. They are part of the contract with plugins, like the
names in ``homeport.plugin``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from homeport import require_own_packages

require_own_packages()

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.analysis.evaluate import framework_in_memory
from app.analysis.verdict import evaluate_pod
from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.config.profile import Profile
from app.feeds.saved import in_memory_handle, load_objects, objects_in
from app.framework.handle import Handle
from app.framework.node_info import Candidates
from app.framework.parts import Part, extras_of
from app.framework.spec import PluginSpec
from app.framework.status import Code, Status
from app.kube.core_decoding import core_v1, decode_node, decode_pod
from app.kube.core_v1 import Node, Pod
from app.runtime.declared import DeclaredObjects
from app.runtime.guard import Guard, PluginError
from app.runtime.profiles import core_for, has_point
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.runtime.waiting import PodsAtPermit
from app.telemetry.metrics import Metrics
from plugins import SHIPPED

__all__ = ["PluginError", "PluginVerdict", "make_handle", "make_node", "make_pod", "run_plugin"]

_NOTHING: Final[Mapping[str, Any]] = {}
_CLUSTER: Final = "cluster"
"""Name of the YAML manifests in error messages."""

_NEEDED: Final = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
"""Extension points at which every profile must have a plugin, each with a default.

``run_plugin`` adds the default if the plugin under test does not implement the extension point.
"""

_CODES: Final = {code.word: code for code in Code}


class PluginVerdict(Struct, frozen=True):
    """Verdict of one plugin on one pod.

    ``pre_filter``: status of the plugin's preFilter; Success if the plugin skips, or has no preFilter; a rejection if
    the cluster has no nodes. Unless it is Success, ``filter`` and ``score`` are empty. ``filter``: status by node;
    Error if the plugin raised an exception. ``score``: normalized score (0 to 100) of each passing node, not multiplied
    by a weight. ``score`` is empty if the plugin does not score, or if its filter raised an exception.
    """

    pre_filter: Status
    filter: Mapping[str, Status]
    score: Mapping[str, int]

    @property
    def passed(self) -> list[str]:
        """Names of the nodes that pass, in the order of the cluster."""
        return [name for name, status in self.filter.items() if status.is_success]

    @property
    def reasons(self) -> dict[str, tuple[str, ...]]:
        """Reasons by node, for each node that does not pass."""
        return {name: status.reasons for name, status in self.filter.items() if not status.is_success}


def make_pod(
    name: str = "web-1",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] = _NOTHING,
    metadata: Mapping[str, Any] = _NOTHING,
    spec: Mapping[str, Any] = _NOTHING,
    status: Mapping[str, Any] = _NOTHING,
) -> Pod:
    """Create a pod as read by a plugin that declares every part. The keys in the mappings are those of a manifest.

    The UID is ``namespace/name`` unless ``metadata`` has one. Raises ``msgspec.DecodeError`` for an invalid pod.
    """
    own = {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}", "resourceVersion": "1", "labels": labels}
    return decode_pod(msgspec.json.encode({"metadata": {**own, **metadata}, "spec": spec, "status": status}))


def make_node(
    name: str = "n1",
    *,
    labels: Mapping[str, str] = _NOTHING,
    metadata: Mapping[str, Any] = _NOTHING,
    spec: Mapping[str, Any] = _NOTHING,
    status: Mapping[str, Any] = _NOTHING,
) -> Node:
    """Create a node as read by a plugin that declares every part and every annotation. The keys in the mappings are
    those of a manifest.

    The UID is the name unless ``metadata`` has one. Raises ``msgspec.DecodeError`` for an invalid node.
    """
    own = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
    return decode_node(msgspec.json.encode({"metadata": {**own, **metadata}, "spec": spec, "status": status}))


def make_handle(spec: PluginSpec[Any], cluster: str = "", args: Mapping[str, Any] = _NOTHING) -> Handle:
    """Create a handle for a plugin. ``cluster``: YAML manifests of all objects.

    Binds and writes change a copy of these objects in memory. ``handle.objects`` contains the kinds that ``spec``
    declares for ``args``, and raises ``LookupError`` for other kinds, as in production. Raises ``ValueError`` for
    manifests that cannot be read, and for invalid arguments.
    """
    parsed = spec.args.model_validate(dict(args))
    needs = spec.needs(parsed)
    kinds = {*needs.kinds, *(it.kind for it in needs.writes)}
    cache = Cluster(core_v1(extras_of(Part), None))
    load_objects(_objects(cluster), cache, kinds, _CLUSTER)
    handle = in_memory_handle(cache, PodsAtPermit())
    return replace(handle, objects=DeclaredObjects(spec.name, kinds, handle.objects))


def run_plugin(
    spec: PluginSpec[Any], cluster: str, *, pod: str = "", args: Mapping[str, Any] = _NOTHING
) -> PluginVerdict:
    """Run a plugin alone, from preFilter to score, for one pending pod and every node.

    ``cluster``: YAML manifests of all objects, in the form of ``kubectl get -o yaml``. ``apiVersion`` defaults to
    ``v1``, and a pod's namespace to ``default``; UIDs can be omitted. ``pod``: name or ``namespace/name`` of a pod
    without ``spec.nodeName``. It can be omitted if there is only one such pod. ``args``: the plugin's arguments, in the
    form of a profile's ``pluginConfig``.

    Raises ``ValueError`` for manifests, arguments or a plugin that Homeport would refuse at start, and if ``pod`` does
    not select exactly one pod. Raises ``PluginError`` if the plugin fails in preScore or score, or returns a score
    outside 0 to 100.
    """
    registry = Registry([*SHIPPED, spec], {})
    (profile,) = resolve([Profile.model_validate(_profile(spec, args))], registry)
    cache = Cluster(core_for((profile,)))
    load_objects(_objects(cluster), cache, profile.kinds(), _CLUSTER)
    framework = framework_in_memory(profile, cache, Guard(Metrics()))
    judging = _waiting_pod(cache, pod)
    with cache.without(judging.uid, judging.key):
        verdict = run_prepared(lambda: evaluate_pod(framework, judging, Candidates.of(cache.nodes)))
    return PluginVerdict(
        _status(verdict["preFilter"]),
        {name: _status(status) for name, status in verdict["filter"].items()},
        {name: scores[spec.name] for name, scores in verdict["score"].items() if spec.name in scores},
    )


def _profile(spec: PluginSpec[Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a profile with this plugin and the plugins that every profile must have."""
    names = [spec.name, *(name for point, name in _NEEDED.items() if not has_point(spec, point))]
    multi_point = {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}
    return {
        "schedulerName": "*",
        "plugins": {"multiPoint": multi_point},
        "pluginConfig": [{"name": spec.name, "args": dict(args)}],
    }


def _objects(cluster: str) -> Iterator[Mapping[str, Any]]:
    for manifest in objects_in(cluster.encode(), _CLUSTER):
        completed = {"apiVersion": "v1", **manifest}
        if completed["kind"] == "Pod" and isinstance(manifest.get("metadata"), dict):
            completed["metadata"] = {"namespace": "default", **manifest["metadata"]}
        yield completed


def _waiting_pod(cache: Cluster, name: str) -> Pod:
    """Return the only pod without a node. ``name``: name or ``namespace/name`` of the pods that count; empty for all.

    Raises ``ValueError`` if there is no such pod, or more than one.
    """
    waiting = [it for it in cache.pods() if not it.node_name]
    chosen = [it for it in waiting if name in ("", it.name, str(it))]
    if len(chosen) != 1:
        names = ", ".join(map(str, waiting)) or "none"
        raise ValueError(f"{_CLUSTER}: expected one pod without spec.nodeName named {name!r}; waiting are: {names}")
    return chosen[0]


def _status(status: Mapping[str, Any]) -> Status:
    return Status(_CODES[status["code"]], tuple(status["reasons"]), status["plugin"])
