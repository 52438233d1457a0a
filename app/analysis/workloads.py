"""Explains the pods of a workload, or those that a label selector matches. Equal pods are explained once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.explaining import Explained, Explainer
from app.analysis.pending import Inputs, inputs_of
from app.cache.cluster import Cluster
from app.kube.core_v1 import Pod
from app.kube.selectors import Selector
from app.verbs.context import Problem, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import run_stepwise

MOST_PODS: Final = 50
"""Maximum number of pods in one answer."""

_HASH: Final = "pod-template-hash"
_PODS_PER_STEP: Final = 256

_INSTANCES: Final = {"VirtualMachine": "VirtualMachineInstance"}
"""Kind of the object with the same name that owns the pods of a workload of this kind."""


class ExplainedPods(Struct, frozen=True):
    """Explanation of pods with equal inputs: all of them have no node, or all of them have one."""

    pods: Sequence[Pod]
    explained: Explained


class ExplainedWorkload(Struct, frozen=True):
    """Explanations of some pods, first of those without a node. ``total``: number of all pods that match."""

    items: Sequence[ExplainedPods]
    total: int


class WorkloadExplainer:
    """Explains the pods of workloads with an ``Explainer``."""

    def __init__(self, explainer: Explainer, cluster: Cluster, problem: Problem) -> None:
        self._explainer = explainer
        self._cluster = cluster
        self._problem = problem

    async def owned(self, namespace: str, kind: str, name: str) -> ExplainedWorkload:
        """Explain the pods of a workload. Raises ``VerbFailure``, also if the workload has no pods.

        The pods of a Deployment are found by the name of their ReplicaSet, those of a VirtualMachine by its
        VirtualMachineInstance, and all others by their controller.
        """
        require_snapshot(self._problem)
        pods: list[Pod] = []
        await run_stepwise(self._collect(namespace, lambda pod: is_of(pod, kind, name), pods))
        if not pods:
            raise VerbFailure("nothing_to_do", f'no pods of {kind} "{name}" found in namespace "{namespace}"')
        return await self._explained(pods)

    async def selected(self, namespace: str, selector: Selector) -> ExplainedWorkload:
        """Explain the pods of a namespace that a selector matches; there can be none. Raises ``VerbFailure``."""
        require_snapshot(self._problem)
        pods: list[Pod] = []
        await run_stepwise(self._collect(namespace, lambda pod: selector.matches(pod.labels), pods))
        return await self._explained(pods)

    def _collect(self, namespace: str, wanted: Callable[[Pod], bool], pods: list[Pod]) -> Iterator[None]:
        for number, pod in enumerate(self._cluster.pods_in(namespace)):
            if wanted(pod):
                pods.append(pod)
            if number % _PODS_PER_STEP == 0:
                yield

    async def _explained(self, pods: Sequence[Pod]) -> ExplainedWorkload:
        first = sorted(pods, key=lambda it: (bool(it.node_name), it.name))[:MOST_PODS]
        groups: dict[tuple[bool, Inputs], list[Pod]] = {}
        for pod in first:
            groups.setdefault((bool(pod.node_name), inputs_of(pod)), []).append(pod)
        items = [
            ExplainedPods(group, await self._explainer.explain(replace(group[0], node_name="")))
            for group in groups.values()
        ]
        return ExplainedWorkload(items, len(pods))


def is_of(pod: Pod, kind: str, name: str) -> bool:
    """Return true if the pod belongs to the workload of this kind and name in its namespace."""
    owner = pod.owner
    if owner is None:
        return False
    if kind == "Deployment":
        return owner.kind == "ReplicaSet" and owner.name == f"{name}-{pod.labels.get(_HASH, '')}"
    return owner.kind == _INSTANCES.get(kind, kind) and owner.name == name
