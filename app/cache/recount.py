"""Recount of pods by node, for each label set and each selector, to check the cached counts."""

from __future__ import annotations

from collections.abc import Iterable

from app.cache.selections import EVERYWHERE, Scope, SelectionKey, covers
from app.kube.core_v1 import Pod
from app.kube.labels import LabelSet
from app.kube.selectors import Selector


class PodRecount:
    """Recount of pods in steps. ``see`` counts each pod once, and ``moved`` applies each change of a pod.

    So the recount is exact even if pods change between the steps. ``groups``: number of pods by node, for each
    namespace and label set. ``selections``: number of pods by node, for each given selection.
    """

    def __init__(self, selections: Iterable[SelectionKey], *, terminating: bool = False) -> None:
        """``terminating``: also count terminating pods."""
        self._terminating = terminating
        self.groups: dict[tuple[str, LabelSet], dict[str, int]] = {}
        self.selections: dict[SelectionKey, dict[str, int]] = {key: {} for key in selections}
        self._by_scope: dict[Scope, list[Selector]] = {}
        for scope, selector in self.selections:
            self._by_scope.setdefault(scope, []).append(selector)
        self._wide = [it for it in self._by_scope if isinstance(it, frozenset) or it == EVERYWHERE]
        self._rows: dict[tuple[str, LabelSet], list[dict[str, int]]] = {}
        self._seen: set[str] = set()

    def see(self, pod: Pod) -> None:
        """Count the current version of a pod, unless ``see`` or ``moved`` was called for this pod before."""
        if pod.uid not in self._seen:
            self._seen.add(pod.uid)
            self._add(pod, 1)

    def moved(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a change of a pod. ``old`` is ``None`` if it was added, ``new`` is ``None`` if it was deleted."""
        for pod, delta in ((old, -1), (new, 1)):
            if pod is not None and (delta > 0 or pod.uid in self._seen):
                self._add(pod, delta)
            if pod is not None:
                self._seen.add(pod.uid)

    def _add(self, pod: Pod, delta: int) -> None:
        if not pod.node_name or (pod.terminating and not self._terminating):
            return
        for row in self._rows_of((pod.namespace, pod.labels)):
            count = row.get(pod.node_name, 0) + delta
            if count:
                row[pod.node_name] = count
            else:
                del row[pod.node_name]

    def _rows_of(self, group: tuple[str, LabelSet]) -> list[dict[str, int]]:
        """Return all tables (number of pods by node) that include the pods of ``group``, a namespace and label set.

        The result is cached, so that each label set is compared with each selector only once.
        """
        rows = self._rows.get(group)
        if rows is None:
            namespace, labels = group
            scopes = (namespace, *(it for it in self._wide if covers(it, namespace)))
            keys = ((scope, it) for scope in scopes for it in self._by_scope.get(scope, ()) if it.matches(labels))
            self.groups[group] = {}
            rows = self._rows[group] = [self.groups[group], *(self.selections[key] for key in keys)]
        return rows
