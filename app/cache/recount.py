"""What a recount counts, from pods alone, to compare with what is kept."""

from __future__ import annotations

from collections.abc import Iterable

from app.cache.selections import EVERYWHERE, PlacedPod, Scope, SelectionKey, covers
from app.kube.labels import LabelSet
from app.kube.selectors import Selector


class PodRecount:
    """Pods counted anew, as plainly as can be. CountOverlay while it is made are told to it, so that it ends up exact.

    ``groups`` are counts by node of each namespace and label set, ``selections`` those of the selections given.
    """

    def __init__(self, selections: Iterable[SelectionKey], *, terminating: bool = False) -> None:
        """``terminating``: whether such pods are counted, too."""
        self._terminating = terminating
        self.groups: dict[tuple[str, LabelSet], dict[str, int]] = {}
        self.selections: dict[SelectionKey, dict[str, int]] = {key: {} for key in selections}
        self._by_scope: dict[Scope, list[Selector]] = {}
        for scope, selector in self.selections:
            self._by_scope.setdefault(scope, []).append(selector)
        self._wide = [it for it in self._by_scope if isinstance(it, frozenset) or it == EVERYWHERE]
        self._rows: dict[tuple[str, LabelSet], list[dict[str, int]]] = {}
        self._seen: set[str] = set()

    def see(self, pod: PlacedPod) -> None:
        """A pod as it is now. Once is enough: what happens to it later is told."""
        if pod.uid not in self._seen:
            self._seen.add(pod.uid)
            self._add(pod, 1)

    def moved(self, old: PlacedPod | None, new: PlacedPod | None) -> None:
        """A pod changed from one form to another, came (``old`` is None) or went (``new`` is None)."""
        for pod, delta in ((old, -1), (new, 1)):
            if pod is not None and (delta > 0 or pod.uid in self._seen):
                self._add(pod, delta)
            if pod is not None:
                self._seen.add(pod.uid)

    def _add(self, pod: PlacedPod, delta: int) -> None:
        if not pod.node_name or (pod.terminating and not self._terminating):
            return
        for row in self._rows_of((pod.namespace, pod.labels)):
            count = row.get(pod.node_name, 0) + delta
            if count:
                row[pod.node_name] = count
            else:
                del row[pod.node_name]

    def _rows_of(self, group: tuple[str, LabelSet]) -> list[dict[str, int]]:
        """Where pods of a group are counted; each label set is asked against each selector once."""
        rows = self._rows.get(group)
        if rows is None:
            namespace, labels = group
            scopes = (namespace, *(it for it in self._wide if covers(it, namespace)))
            keys = ((scope, it) for scope in scopes for it in self._by_scope.get(scope, ()) if it.matches(labels))
            self.groups[group] = {}
            rows = self._rows[group] = [self.groups[group], *(self.selections[key] for key in keys)]
        return rows
