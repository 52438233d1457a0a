"""Explains the pods of a workload, or those that a label selector matches. Equal pods are explained once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from msgspec import Struct

from app.analysis.explain_snapshot import ExplainSnapshot
from app.analysis.explaining import MOST_SECONDS, Explained, Explainer
from app.analysis.pending import Inputs, inputs_of
from app.analysis.selecting import PodSelection
from app.kube.core_v1 import Pod
from app.kube.kinds import REPLICA_SETS
from app.kube.selectors import Selector
from app.verbs.context import Problem, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.similar import similar
from app.verbs.stepwise import run_stepwise
from app.verbs.unserved import printable

MOST_PODS: Final = 50
"""Maximum number of pods in one answer."""

MOST_SECONDS_OF_ALL: Final = 5.0
"""Processor time of one answer, in seconds, after which further pods are explained without remedies."""

_HASH: Final = "pod-template-hash"
_DEPLOYMENT: Final = "Deployment"
_CRON: Final = re.compile(r"(?P<name>.+)-(?P<minutes>[0-9]{8})")
"""Name of a Job that a CronJob creates: the CronJob's name, and the scheduled time in minutes since 1970."""

_LONGEST_LATE: Final = 7 * 24 * 60
"""Maximum minutes from the scheduled time of a CronJob to the creation of a pod.

So a Job whose name ends with a date, such as 20261124, is not taken for one of a CronJob.
"""

_INSTANCES: Final = {"VirtualMachine": "VirtualMachineInstance"}
"""Kind of the object that owns the pods, by kind of the workload. Both objects have the same name."""


class ExplainedPods(Struct, frozen=True):
    """Explanation of pods with equal inputs: all of them have no node, or all of them are on one node."""

    pods: Sequence[Pod]
    explained: Explained


class ExplainedWorkload(Struct, frozen=True):
    """Explanations of pods, first of those without a node. ``total``: number of all pods that match.

    ``omitted``: number of matching pods beyond the limit ``MOST_PODS``, which are not explained.
    """

    items: Sequence[ExplainedPods]
    total: int
    omitted: int


class WorkloadExplainer:
    """Explains the pods of workloads with an ``Explainer``."""

    def __init__(self, explainer: Explainer, snapshot: ExplainSnapshot, problem: Problem) -> None:
        """``problem``: returns why the snapshot of the decisions cannot be used; empty if it can."""
        self._explainer = explainer
        self._snapshot = snapshot
        self._cluster = snapshot.cluster
        self._problem = problem

    async def owned(self, namespace: str, kind: str, name: str) -> ExplainedWorkload:
        """Explain the pods of a workload. Raises ``VerbFailure``, also if the workload has no pods.

        The pods of a Deployment are found by the name of their ReplicaSet, and those of a CronJob by the name of their
        Job. The pods of a VirtualMachine are found by the name of its VirtualMachineInstance, and all others by their
        controller.
        """
        return await self._explained(await self.pods_of(namespace, kind, name, MOST_PODS))

    async def pods_of(self, namespace: str, kind: str, name: str, most: int) -> PodSelection:
        """Return at most ``most`` pods of a workload. Raises ``VerbFailure``, also if the workload has no pods."""
        selection = await self._selected(namespace, lambda pod: (kind, name) in workloads_of(pod), most)
        if not selection.total:
            message = f'no pods of {printable(kind)} "{printable(name)}" found in namespace "{printable(namespace)}"'
            raise VerbFailure("nothing_to_do", message + await self._offered(namespace, kind, name))
        return selection

    async def selected(self, namespace: str, selector: Selector) -> ExplainedWorkload:
        """Explain the pods of a namespace that a selector matches. The answer can be empty.

        ``namespace``: empty for all namespaces. Raises ``VerbFailure``, also if the namespace does not exist.
        """
        selection = await self._selected(namespace, lambda pod: selector.matches(pod.labels))
        if namespace:
            self._snapshot.require_namespace(namespace)
        return await self._explained(selection)

    async def _selected(self, namespace: str, wanted: Callable[[Pod], bool], most: int = MOST_PODS) -> PodSelection:
        require_snapshot(self._problem)
        require_snapshot(self._snapshot.problem)
        selection = PodSelection(wanted, lambda it: (bool(it.node_name), it.name, it.namespace))
        every = self._cluster.pods_in(namespace) if namespace else self._cluster.pods()
        await run_stepwise(selection.steps(every, 0, most))
        return selection

    async def _offered(self, namespace: str, kind: str, name: str) -> str:
        """Return the end of the message about an unknown workload: similar names, kinds or namespaces, if any."""
        names: dict[str, set[str]] = {}
        await run_stepwise(self._workloads(namespace, names))
        if not names:
            return f", which has no pods{similar(printable(namespace), self._cluster.namespaces(), 'namespace')}"
        if kind not in names:
            return similar(printable(kind), names, "kind")
        return similar(printable(name), sorted(names[kind]))

    def _workloads(self, namespace: str, names: dict[str, set[str]]) -> Iterator[None]:
        """Add the names of all workloads with pods in the namespace, by kind."""
        for pod in self._cluster.pods_in(namespace):
            for kind, name in workloads_of(pod):
                names.setdefault(kind, set()).add(name)
            yield

    async def _explained(self, selection: PodSelection) -> ExplainedWorkload:
        groups: dict[tuple[str, Inputs], list[Pod]] = {}
        for pod in selection.pods:
            groups.setdefault((pod.node_name, inputs_of(pod)), []).append(pod)
        left = MOST_SECONDS_OF_ALL
        items: list[ExplainedPods] = []
        for group in groups.values():
            explained = await self._explainer.explain(group[0], seconds=min(MOST_SECONDS, left))
            left -= explained.seconds
            items.append(ExplainedPods(group, explained))
        return ExplainedWorkload(items, selection.total, selection.total - len(selection.pods))


def workload_of(pod: Pod) -> tuple[str, str]:
    """Return kind and name of the outermost workload of a pod, such as its Deployment; of the pod itself if it has
    none.
    """
    return [("Pod", pod.name), *workloads_of(pod)][-1]


def workloads_of(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each workload that the pod belongs to: its controller, and the controllers above that."""
    owner = pod.owner
    if owner is None:
        return
    yield owner.kind, owner.name
    for kind, instance in _INSTANCES.items():
        if owner.kind == instance:
            yield kind, owner.name
    cron_job = _CRON.fullmatch(owner.name) if owner.kind == "Job" else None
    if cron_job and 0 <= _minutes(pod.created) - int(cron_job["minutes"]) <= _LONGEST_LATE:
        yield "CronJob", cron_job["name"]
    suffix = f"-{pod.labels.get(_HASH, '')}"
    if owner.kind == REPLICA_SETS.kind and owner.name.endswith(suffix):
        yield _DEPLOYMENT, owner.name.removesuffix(suffix)


def _minutes(created: str) -> int:
    """Return a creation time (RFC 3339) in minutes since 1970; -1 if ``created`` is not a valid time."""
    with suppress(ValueError):
        return int(datetime.fromisoformat(created).timestamp() // 60)
    return -1
