"""Refused pods and the reasons: counted, and remembered while the pods wait."""

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
"""Name of a plugin, and the reason that it gave."""

NO_PLUGIN: Final = "(none)"
"""Name used for refusals by Homeport itself, for example of a node that cannot be read."""

REST: Final = "(others)"
"""Name used for all reasons beyond the first ``MOST_CAUSES``."""

MOST_CAUSES: Final = 64
"""Maximum number of causes with a counter of their own."""

MOST_OF_ONE: Final = 16
"""Maximum number of causes of one refusal: a plugin with more puts names into its reasons."""

LONGEST_REASON: Final = 120
"""Maximum number of characters of a reason in a label; longer ones are truncated."""

MOST_PODS: Final = 20_000
"""Maximum number of remembered pods."""

_STEP: Final = 256
"""Pods processed in one step: a tenth of a millisecond."""


class CauseCounter(Protocol):
    """Counter, increased for each refusal."""

    def inc(self) -> None: ...


class _RecentRefusal(Struct, frozen=True):
    """Refused pod with its profile and the plugins that refused it."""

    key: ObjectKey
    profile: str
    plugins: frozenset[str]


class RecentRefusals:
    """Most recently refused pods, at most ``most``. ``counter`` creates the counter of a plugin and a reason."""

    def __init__(self, counter: Callable[[str, str], CauseCounter], most: int = MOST_PODS) -> None:
        self._counter = counter
        self._counters: dict[Cause, CauseCounter] = {}
        self._pods = Newest[str, _RecentRefusal](most)

    def refused(self, pod: Pod, profile: str, causes: tuple[Cause, ...]) -> None:
        """Record that every node was refused; each of the causes refused some of them."""
        for cause in causes:
            (self._counters.get(cause) or self._new(cause)).inc()
        self._pods.put(pod.uid, _RecentRefusal(pod.key, profile, frozenset(map(itemgetter(0), causes))))

    def fits(self, pod: Pod) -> None:
        """Forget the pod, because a node fits it."""
        self._pods.pop(pod.uid, None)

    def by_plugins(self, plugins: Collection[str]) -> list[ObjectKey]:
        """Return the remembered pods that one of ``plugins`` refused."""
        return [it.key for it in self._pods.values() if not it.plugins.isdisjoint(plugins)]

    def forget(self) -> None:
        """Forget all pods, because another replica answers from now on."""
        self._pods.clear()

    def _new(self, cause: Cause) -> CauseCounter:
        """Create the counter of a cause. Causes beyond the maximum share one, so that no table grows."""
        if len(self._counters) >= MOST_CAUSES:
            cause = (cause[0], REST)
        plugin, reason = cause
        return self._counters.setdefault(cause, self._counter(plugin, reason[:LONGEST_REASON]))

    def count(self, cluster: Cluster, counts: dict[tuple[str, str], int]) -> Iterator[None]:
        """Fill ``counts`` with the refused pods that still wait, by plugin and profile, in short steps."""
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
    """Return the causes of rejections."""
    return tuple(islice(dict.fromkeys((it.plugin or NO_PLUGIN, it.message) for it in statuses), MOST_OF_ONE))


def merge_causes(causes: tuple[Cause, ...], more: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Merge the causes of two refusals of one pod."""
    return causes if causes == more else tuple(islice(dict.fromkeys((*causes, *more)), MOST_OF_ONE))
