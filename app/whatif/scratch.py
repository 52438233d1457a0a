"""Scratch cluster: a copy of the snapshot that a what-if can change, with plugins that see only the copy.

Changes of the copy reach neither the real cluster nor the snapshot and plugins that decide for kube-scheduler. So a
what-if can place pods one after the other, remove nodes and delete pods as if these were real events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from app.analysis.evaluate import framework_in_memory
from app.analysis.explain_snapshot import ExplainSnapshot
from app.cache.cluster import Cluster
from app.homes.evictable import why_never_evicted
from app.homes.lists import HomeLists, share_memory
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.runtime.profiles import ResolvedProfile
from app.telemetry.metrics import Metrics


class ScratchCluster:
    """Copy of a cluster, and plugins for it. ``profiles``: by scheduler name; the name ``*`` serves all other names."""

    def __init__(
        self,
        source: Cluster,
        profiles: Mapping[str, ResolvedProfile],
        any_name: str,
        explaining: Mapping[str, Framework] | None = None,
    ) -> None:
        """``any_name``: scheduler name of the profile for pods that no profile serves.

        ``explaining``: frameworks of explain by scheduler name. The scratch plugins share their memory of homes.
        """
        self.cluster = Cluster(source.core)
        self._source = source
        self._profiles = profiles
        self._any_name = any_name
        self._explaining = explaining or {}
        self.guard = Guard(Metrics())
        self._frameworks: dict[str, Framework] = {}

    def copying(self, in_flight: Sequence[Pod] = ()) -> Iterator[None]:
        """Copy all nodes, pods and objects, in short steps.

        ``in_flight``: pods that have a node only in the snapshot of the scheduling decisions, each with that node.
        The source can change between two steps. The copy then mixes objects from before and after the change.
        """
        for kind in self._source.others.kinds():
            for obj in self._source.every(kind):
                self.cluster.others.upsert(kind, obj)
                yield
        for kind, causes in tuple(self._source.unreadable.items()):
            for key, cause in tuple(causes.items()):
                self.cluster.mark_unreadable(kind, key, cause)
        for info in tuple(self._source.base_nodes.values()):
            self.cluster.upsert_node(info.node)
            yield
        for pod in self._source.pods():
            self.cluster.upsert_pod(pod)
            yield
        for pod in in_flight:
            self.cluster.upsert_pod(pod)

    @property
    def used(self) -> Collection[str]:
        """Scheduler names of the profiles whose framework was created."""
        return self._frameworks.keys()

    def frameworks(self) -> Sequence[Framework]:
        """Return the framework of each profile, and create those that do not exist yet.

        Raises ``ProfileErrors`` if a plugin cannot be created.
        """
        return [self._framework(name) for name in self._profiles]

    def reads(self, kind: Kind[Any]) -> bool:
        """Return True if a profile reads the kind. If none does, the snapshot can lack its objects."""
        return any(kind in it.kinds() for it in self._profiles.values())

    def framework_for(self, pod: Pod) -> Framework:
        """Return the plugins of the pod's profile. A pod that no profile serves gets the profile ``any_name``.

        Raises ``ProfileErrors`` if a plugin cannot be created.
        """
        name = pod.spec.scheduler_name if pod.spec.scheduler_name in self._profiles else self._any_name
        return self._framework(name)

    def stays(self, pod: Pod) -> str:
        """Return why a pod must not be evicted for another one, or an empty string. Raises ``PluginError``."""
        framework = self.framework_for(pod)
        return why_never_evicted(HomeLists((framework,), self.guard), framework, pod)

    def _framework(self, name: str) -> Framework:
        framework = self._frameworks.get(name)
        if framework is None:
            framework = framework_in_memory(self._profiles[name], self.cluster, self.guard)
            if name in self._explaining:
                share_memory(framework, self._explaining[name])
            self._frameworks[name] = framework
        return framework


def scratch_of(snapshot: ExplainSnapshot) -> ScratchCluster:
    """Return an empty scratch cluster for the snapshot of explain, with all plugins that explain uses."""
    profiles = snapshot.resolved
    any_name = "*" if "*" in profiles else next(iter(profiles))
    return ScratchCluster(snapshot.cluster, profiles, any_name, snapshot.frameworks)
