"""Pods for which every node was refused. Counts the reasons, and remembers each pod while it is pending."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final, Protocol

from msgspec import Struct

from app.cache.cluster import Cluster
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.kube.memo import Newest
from app.kube.meta_v1 import ObjectKey

Cause = tuple[str, str]
"""Name of a plugin, and the reason that it gave for a rejection."""

NO_PLUGIN: Final = "(none)"
"""Plugin name of rejections by Homeport itself, for example of a node that cannot be decoded."""

REST: Final = "(others)"
"""Reason label for all causes after the first ``MOST_CAUSES``. Each plugin has one counter with this label."""

MOST_CAUSES: Final = 64
"""Maximum number of causes with a counter of their own."""

MOST_OF_ONE: Final = 16
"""Maximum number of causes counted for one refusal. A plugin that puts object names into reasons would give more."""

LONGEST_REASON: Final = 120
"""Maximum number of characters of a reason in a metric label. Longer reasons are truncated."""

MOST_PODS: Final = 20_000
"""Maximum number of remembered pods."""

_STEP: Final = 256
"""Number of pods that ``count`` and ``find`` process in one step, which takes a tenth of a millisecond."""


class CauseCounter(Protocol):
    """Counter of the refusals with one cause."""

    def inc(self) -> None: ...


class _RecentRefusal(Struct, frozen=True):
    """Refused pod: its key, its profile, and the plugins in its causes, of which there are at most ``MOST_OF_ONE``."""

    key: ObjectKey
    profile: str
    plugins: frozenset[str]


class RecentRefusals:
    """Most recently refused pods, at most ``most``. ``counter``: returns the counter for a plugin and a reason."""

    def __init__(self, counter: Callable[[str, str], CauseCounter], most: int = MOST_PODS) -> None:
        self._counter = counter
        self._counters: dict[Cause, CauseCounter] = {}
        self._pods = Newest[str, _RecentRefusal](most)

    def refused(self, pod: Pod, profile: str, causes: tuple[Cause, ...]) -> None:
        """Record that every node was refused for a pod, and count each of the ``causes`` once."""
        for cause in causes:
            (self._counters.get(cause) or self._new(cause)).inc()
        self._pods.put(pod.uid, _RecentRefusal(pod.key, profile, frozenset(map(itemgetter(0), causes))))

    def fits(self, pod: Pod) -> None:
        """Forget the pod, because filter found a node for it."""
        self._pods.pop(pod.uid, None)

    def by_plugins(self, plugins: Collection[str]) -> list[ObjectKey]:
        """Return the remembered pods with at least one of ``plugins`` in their causes (``_RecentRefusal``)."""
        return [it.key for it in self._pods.values() if not it.plugins.isdisjoint(plugins)]

    def find(self, plugin: str, keys: dict[str, ObjectKey]) -> Iterator[None]:
        """Add the remembered pods with ``plugin`` in their causes to ``keys``, by UID, in short steps."""
        for number, uid in enumerate(tuple(self._pods)):
            if number % _STEP == _STEP - 1:
                yield
            refused = self._pods.get(uid)
            if refused is not None and plugin in refused.plugins:
                keys[uid] = refused.key

    def forget(self) -> None:
        """Forget all pods, because another replica answers the scheduler from now on."""
        self._pods.clear()

    def _new(self, cause: Cause) -> CauseCounter:
        """Create the counter of a cause. After ``MOST_CAUSES``, new causes of a plugin share one, to limit memory."""
        if len(self._counters) >= MOST_CAUSES:
            cause = (cause[0], REST)
        plugin, reason = cause
        return self._counters.setdefault(cause, self._counter(plugin, reason[:LONGEST_REASON]))

    def count(self, cluster: Cluster, counts: dict[tuple[str, str], int]) -> Iterator[None]:
        """Add the numbers of refused pods that are still pending to ``counts``, by (plugin, profile), in short steps.

        Pods that no longer exist or have a node are forgotten.
        """
        for number, uid in enumerate(tuple(self._pods)):
            if number % _STEP == _STEP - 1:
                yield
            refused = self._pods.get(uid)
            if refused is None:
                continue
            pod = cluster.pod(*refused.key)
            if pod is None or pod.uid != uid or pod.node_name:
                del self._pods[uid]
                continue
            for plugin in refused.plugins:
                key = (plugin, refused.profile)
                counts[key] = counts.get(key, 0) + 1


def causes_of(statuses: Iterable[Status]) -> tuple[Cause, ...]:
    """Return the distinct causes of rejections, at most the first ``MOST_OF_ONE``."""
    return tuple(islice(dict.fromkeys((it.plugin or NO_PLUGIN, it.message) for it in statuses), MOST_OF_ONE))


def merge_causes(causes: tuple[Cause, ...], more: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Return the distinct causes of ``causes`` and ``more``, at most the first ``MOST_OF_ONE``."""
    return causes if causes == more else tuple(islice(dict.fromkeys((*causes, *more)), MOST_OF_ONE))
