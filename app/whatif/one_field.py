"""Finds one field of a workload after whose change fewer of its lost pods wait.

A change is proved: the waiting pods are placed again with the changed field, after all other lost pods. Changes that
keep the purpose of a rule are tried first. Making a constraint soft is tried last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.pending import Inputs, inputs_of
from app.analysis.spread_blocks import SPREAD
from app.framework.node_info import Candidates
from app.homes.lists import HomeLists
from app.homes.protocol import POLICY, Home, Policy
from app.kube.core_v1 import HONOR, SCHEDULE_ANYWAY, Pod, PodSpec, TopologySpreadConstraint
from app.kube.kinds import AnnotatedObject, Kind, owner_kind
from app.kube.node_affinity import ANY_NODE
from app.kube.quantity import round_amount, shown_amount
from app.whatif.budget import Budget
from app.whatif.loss_trial import LossPlacer, rejected_for_home
from app.whatif.placing import Placement
from app.whatif.scratch import ScratchCluster

MOST_TRIED: Final = 16
"""Maximum number of changes that are tried for a workload."""

_CONSTRAINTS: Final = "spec.topologySpreadConstraints"
_FIT: Final = "NodeResourcesFit"
_NODE_AFFINITY: Final = "NodeAffinity"
_POD_AFFINITY: Final = "InterPodAffinity"

_MORE_SKEW: Final = (1, 2, 3, 4, 6, 8)
"""Increases of ``maxSkew`` that are tried, if smaller than the number of waiting pods.

The last increase that is tried is that number.
"""

Changed = Callable[[PodSpec], PodSpec]
"""Function that returns a copy of a pod's spec with a change."""


class FieldChange(Struct, frozen=True, rename="camel"):
    """Change of one field. ``topology_key``: of the changed constraint; else empty.

    ``waiting``: number of pods of the workload that wait after the change.
    """

    field: str
    value: str
    topology_key: str
    waiting: int


class _FieldAttempt(Struct, frozen=True):
    """Change to try. ``of_all``: true to change all pods of the workload, not only those that wait.

    ``policy``: new policy of the home, set on the owner of the home, not on the pod; ``None`` for other changes.
    """

    field: str
    value: str
    changed: Changed
    topology_key: str = ""
    of_all: bool = False
    policy: Policy | None = None


class OneField:
    """Tries changes on a scratch cluster after a loss, and undoes each change. ``placer``: one that evicts no pods."""

    def __init__(self, scratch: ScratchCluster, placer: LossPlacer, budget: Budget) -> None:
        self._scratch = scratch
        self._cluster = scratch.cluster
        self._placer = placer
        self._budget = budget

    def best(
        self, waiting: Sequence[Placement], others: Callable[[], Sequence[Pod]]
    ) -> Generator[None, None, FieldChange | None]:
        """Return the change after which the fewest pods wait; ``None`` if no tried one helps. Raises ``PluginError``.

        At most ``MOST_TRIED`` changes are tried, and none once the processor time is used up. ``waiting``: pods of one
        workload. ``others``: returns the pods of the workload that have a node.
        """
        best: FieldChange | None = None
        for number, attempt in enumerate(self._attempts(waiting)):
            if number == MOST_TRIED or self._budget.is_over:
                break
            left = yield from self._tried(attempt, [it.pod for it in waiting], others)
            if left < (len(waiting) if best is None else best.waiting):
                best = FieldChange(attempt.field, attempt.value, attempt.topology_key, left)
                if not left:
                    break
        return best

    def _tried(
        self, attempt: _FieldAttempt, waiting: Sequence[Pod], others: Callable[[], Sequence[Pod]]
    ) -> Generator[None, None, int]:
        """Return the number of pods that still wait with a change. Undo the change."""
        owner = None if attempt.policy is None else self._owner(waiting[0])
        if owner is not None:
            obj: Any = owner[1]
            annotated = replace(obj, annotations={**obj.annotations, POLICY: attempt.value})
            self._cluster.others.upsert(owner[0], annotated, newest_wins=False)
        specs: dict[int, PodSpec] = {}
        for pod in waiting:
            specs.setdefault(id(pod.spec), attempt.changed(pod.spec))
        running = others() if attempt.of_all else ()
        for pod in running:
            self._cluster.upsert_pod(replace(pod, spec=attempt.changed(pod.spec)))
        failed: set[Inputs] = set()
        left = 0
        for pod in self._placer.queued([replace(it, spec=specs[id(it.spec)]) for it in waiting]):
            if inputs_of(pod) not in failed and self._placer.place(pod).node:
                failed.clear()
            else:
                failed.add(inputs_of(pod))
                left += 1
            yield
        for pod in (*waiting, *running):
            self._cluster.upsert_pod(pod)
        if owner is not None:
            self._cluster.others.upsert(*owner, newest_wins=False)
        return left

    def _owner(self, pod: Pod) -> tuple[Kind[AnnotatedObject], AnnotatedObject] | None:
        """Return kind and object of the owner of the pod's home; ``None`` if there is no home, or no owner here."""
        home = self._home(pod)
        if home is None:
            return None
        kind = owner_kind(home.owner.api_version, home.owner.kind)
        obj = self._cluster.others.get(kind, home.owner.namespace, home.owner.name)
        return None if obj is None else (kind, obj)

    def _home(self, pod: Pod) -> Home | None:
        framework = self._scratch.framework_for(pod)
        return HomeLists((framework,), self._scratch.guard).home_of(framework, pod)

    def _attempts(self, waiting: Sequence[Placement]) -> Iterator[_FieldAttempt]:
        """Yield the changes to try, in order. They are computed from the rules of the first waiting pod.

        Only rules of plugins that reject nodes for one of the waiting pods are changed.
        """
        placement = waiting[0]
        pod, plugins = placement.pod, {status.plugin for it in waiting for status, _ in it.rejections}
        if rejected_for_home(self._scratch.framework_for(pod), placement):
            for policy in (Policy.GRACE, Policy.SOFT):
                yield _FieldAttempt(f"metadata.annotations[{POLICY}]", policy.value, _unchanged, policy=policy)
        if SPREAD in plugins:
            yield from _of_constraints(pod, len(waiting))
        if _POD_AFFINITY in plugins:
            yield from _of_pod_affinity(pod.spec)
        if _NODE_AFFINITY in plugins and pod.spec.affinity is not ANY_NODE:
            yield _FieldAttempt("spec.nodeSelector and required node affinity", "none", _with(affinity=ANY_NODE))
        if _FIT in plugins:
            yield from _of_requests(self._placer.candidates(pod), pod.spec)
        if SPREAD in plugins:
            for number, constraint in _hard(pod):
                soft = _of_constraint(number, when_unsatisfiable=SCHEDULE_ANYWAY, min_domains=None)
                yield _FieldAttempt(_path(number, "whenUnsatisfiable"), SCHEDULE_ANYWAY, soft, constraint.topology_key)


def _of_constraints(pod: Pod, waiting: int) -> Iterator[_FieldAttempt]:
    """Yield changes of the pod's hard constraints that do not make them soft. ``waiting``: number of waiting pods."""
    for number, constraint in _hard(pod):
        larger = [constraint.max_skew + it for it in (*(more for more in _MORE_SKEW if more < waiting), waiting)]
        fields: list[tuple[str, str, Mapping[str, Any]]] = [
            ("nodeTaintsPolicy", HONOR, {"node_taints_policy": HONOR}),
            ("nodeAffinityPolicy", HONOR, {"node_affinity_policy": None}),
            ("minDomains", "none", {"min_domains": None}),
            *(("maxSkew", str(it), {"max_skew": it}) for it in larger),
        ]
        for field, value, changes in fields:
            if replace(constraint, **changes) != constraint:
                yield _FieldAttempt(
                    _path(number, field), value, _of_constraint(number, **changes), constraint.topology_key
                )


def _hard(pod: Pod) -> Iterator[tuple[int, TopologySpreadConstraint]]:
    """Yield the hard constraints of a pod, each with its position among all constraints."""
    return ((number, it) for number, it in enumerate(pod.spec.spread) if it.is_hard)


def _path(number: int, field: str) -> str:
    return f"{_CONSTRAINTS}[{number}].{field}"


def _of_constraint(number: int, **changes: Any) -> Changed:
    """Return a function that changes fields of one constraint."""

    def changed(spec: PodSpec) -> PodSpec:
        before, own, after = spec.spread[:number], spec.spread[number : number + 1], spec.spread[number + 1 :]
        return replace(spec, spread=(*before, *(replace(it, **changes) for it in own), *after))

    return changed


def _of_pod_affinity(spec: PodSpec) -> Iterator[_FieldAttempt]:
    """Yield changes of pod anti-affinity and pod affinity from required to preferred.

    They are tried by removing the required terms.
    """
    terms: Any = spec.parts.pod_affinity
    for field, name in (("podAntiAffinity", "required_anti"), ("podAffinity", "required")):
        if terms is not None and getattr(terms, name):
            yield _FieldAttempt(
                f"spec.affinity.{field}", "preferred instead of required", _without_terms(name), of_all=True
            )


def _without_terms(name: str) -> Changed:
    def changed(spec: PodSpec) -> PodSpec:
        terms: Any = spec.parts.pod_affinity
        return replace(spec, parts=replace(spec.parts, pod_affinity=replace(terms, **{name: ()})))

    return changed


def _of_requests(nodes: Candidates, spec: PodSpec) -> Iterator[_FieldAttempt]:
    """Yield smaller requests of each resource: the largest free amount of a node, and 1/2 and 1/4 of the request."""
    resources = spec.parts.resources
    wanted_of = {} if resources is None else resources.requests
    most = dict.fromkeys(wanted_of, 0)
    for info in nodes:
        for name, free in info.free(wanted_of).items():
            most[name] = max(most[name], free)
    for name, wanted in wanted_of.items():
        for amount in sorted({round_amount(name, it) for it in (most[name], wanted // 2, wanted // 4)}, reverse=True):
            if 0 < amount < wanted:
                text = f"{shown_amount(name, amount)} instead of {shown_amount(name, wanted)}"
                yield _FieldAttempt(f"resources.requests.{name}", text, _requesting(name, amount))


def _requesting(name: str, amount: int) -> Changed:
    def changed(spec: PodSpec) -> PodSpec:
        resources: Any = spec.parts.resources
        fewer = {it: {**getattr(resources, it), name: amount} for it in ("requests", "requested")}
        return replace(spec, parts=replace(spec.parts, resources=replace(resources, **fewer)))

    return changed


def _with(**changes: Any) -> Changed:
    return lambda spec: replace(spec, **changes)


def _unchanged(spec: PodSpec) -> PodSpec:
    return spec
