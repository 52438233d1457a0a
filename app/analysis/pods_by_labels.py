"""Counts of pods on nodes by label set, for estimates that must not fill the decisions' cache of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from app.kube.core_v1 import Pod, TopologySpreadConstraint
from app.kube.labels import LabelSet
from app.kube.selectors import IN, Selector


class PodsByLabels:
    """Index of pods on nodes: how many pods with a label set each node has, for each namespace."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, LabelSet], Counter[str]] = {}
        self._with: dict[tuple[str, str, str], list[LabelSet]] = {}

    def add(self, pod: Pod) -> None:
        if not pod.node_name:
            return
        key = (pod.namespace, pod.labels)
        if key not in self._nodes:
            self._nodes[key] = Counter()
            for label, value in pod.labels.items():
                self._with.setdefault((pod.namespace, label, value), []).append(pod.labels)
        self._nodes[key][pod.node_name] += 1

    def by_domain(
        self, namespace: str, constraint: TopologySpreadConstraint, labels: LabelSet, domain_of: Mapping[str, str]
    ) -> Counter[str]:
        """Return the number of pods that the constraint of a pod with ``labels`` selects, by domain.

        ``domain_of``: domain by node. Pods on nodes that are not in it are not counted.
        """
        counts: Counter[str] = Counter()
        if constraint.selector is None:
            return counts
        pairs = [(key, labels[key]) for key in constraint.match_label_keys if key in labels]
        selector = constraint.selector.with_labels(pairs)
        for matching in self._candidates(namespace, selector):
            if selector.matches(matching):
                for node, number in self._nodes[namespace, matching].items():
                    if node in domain_of:
                        counts[domain_of[node]] += number
        return counts

    def _candidates(self, namespace: str, selector: Selector) -> Iterable[LabelSet]:
        """Return the label sets of the namespace that can match the selector.

        If the selector allows only one value of a label, these are the sets with that label and value. Otherwise, these
        are all sets.
        """
        for requirement in selector.requirements:
            if requirement.operator == IN and len(requirement.values) == 1:
                return self._with.get((namespace, requirement.key, requirement.values[0]), ())
        return [labels for of, labels in self._nodes if of == namespace]
