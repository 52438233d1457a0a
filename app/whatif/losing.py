"""Loss of a zone or another domain of a node label: which pods are lost, placed again or wait, in three variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from app.analysis.verdict import status_as_json
from app.analysis.workloads import workload_of
from app.framework.status import Status
from app.kube.core_v1 import Node, Pod
from app.verbs.outcome import VerbFailure
from app.verbs.similar import similar
from app.verbs.unserved import printable
from app.whatif.budget import Budget
from app.whatif.loss_trial import (
    LossTrial,
    LossVariant,
    LostDomain,
    VolumeTies,
    is_recreated,
    nodes_by_value,
    stays_terminating,
)
from app.whatif.one_field import FieldChange, OneField
from app.whatif.placing import Placement, recreated
from app.whatif.scratch import ScratchCluster

MOST_DOMAINS: Final = 50
"""Maximum number of domains in the answer for all values of a key: those with the most pods."""

MOST_WORKLOADS: Final = 500
"""Maximum number of workloads in the answer for one domain."""

MOST_RUNNING_IN: Final = 10
"""Maximum number of domains for which the running pods of a workload are listed: those with the most of them."""

MOST_WORST: Final = 20
"""Maximum number of workloads of each domain in the answer for all values of a key.

Only workloads with pods that wait or stay Terminating are listed there.
"""

MOST_CHANGED: Final = 20
"""Maximum number of workloads of each variant for which changes of a field are tried."""

_ORDER: Final = (LossVariant.TAINTED, LossVariant.FULL, LossVariant.GONE)
"""Order in which the variants are computed. ``GONE`` is last, because restored nodes come after all others.

Scores use the image size that the first node reports. So in a later variant, the new order of the nodes would change
scores if nodes reported different sizes of one image.
"""

_MOST_REASONS: Final = 3
_STEP: Final = 50
"""Number of tried pods from one text on the progress to the next."""

Workload = tuple[str, str, str]
"""Namespace, kind and name."""

Steps = Generator[str | None, None, Mapping[str, Any]]


class LossRequest(Struct, frozen=True):
    """``value``: lost value of the node label ``key``; ``None``: compare all values."""

    key: str
    value: str | None


class LossCount(Struct):
    """Numbers of pods after a loss.

    ``lost`` plus ``evicted`` is the sum of ``placed``, ``waiting``, ``not_recreated``, ``not_ended`` and
    ``not_reached``.

    ``evicted``: pods on other nodes that are evicted to make room. ``after_grace``: pods of ``placed`` that first wait
    for their home. ``ties``: pods of ``placed`` for which other nodes have the same score, so that kube-scheduler can
    choose another. ``not_recreated``: pods that no controller creates again elsewhere. ``not_ended``: pods that stay
    Terminating, so that their controller creates no others. ``not_reached``: pods that were not tried, because the
    processor time was used up.
    """

    lost: int = 0
    evicted: int = 0
    placed: int = 0
    after_grace: int = 0
    ties: int = 0
    waiting: int = 0
    not_recreated: int = 0
    not_ended: int = 0
    not_reached: int = 0


class _WorkloadLoss(Struct):
    """Loss of one workload in one variant. ``waiting``: the pods that wait.

    ``change``: field change that helps most; ``None`` if none is known. ``tried``: true if changes were tried, and the
    processor time sufficed for all of them.
    """

    count: LossCount = field(default_factory=LossCount)
    waiting: list[Placement] = field(default_factory=list)
    change: FieldChange | None = None
    tried: bool = False


_Losses = dict[Workload, _WorkloadLoss]


def lost(scratch: ScratchCluster, request: LossRequest, budget: Budget) -> Steps:
    """Simulate the loss of the requested domain, or of each domain in turn (at most ``MOST_DOMAINS``).

    The steps return the fields of a ``LossPlan``. Each domain has a part of ``budget``. When that is used up, pods are
    not tried, and the remaining variants of the domain are ``null``. Raises ``VerbFailure`` and ``PluginError``.
    """
    domains = nodes_by_value(scratch, request.key)
    chosen = _chosen(scratch, request, domains)
    running = _running(scratch, domains)
    yield None
    answers: list[Mapping[str, Any]] = []
    was_over = False
    for value in chosen[:MOST_DOMAINS]:
        yield f"losing {value}: {len(answers)} of {len(chosen)} domains done" if len(chosen) > 1 else None
        part = budget.part(min(MOST_DOMAINS, len(chosen)) - len(answers))
        domain = LostDomain.of(scratch, value, domains[value])
        answers.append((yield from _domain(scratch, domain, running, part, is_alone=request.value is not None)))
        was_over |= part.was_over
    budget.was_over |= was_over
    return {
        "key": request.key,
        "value": request.value,
        "domains": sorted(answers, key=_worst_first),
        "moreDomains": len(chosen) - len(answers),
    }


def _chosen(scratch: ScratchCluster, request: LossRequest, domains: Mapping[str, Sequence[Node]]) -> list[str]:
    """Return the values to lose, those with the most pods first. Raises ``VerbFailure`` if there are none."""
    if not domains:
        labels = {label for it in scratch.cluster.nodes.values() for label in it.node.labels}
        offered = similar(printable(request.key), sorted(labels), "label")
        raise VerbFailure("nothing_to_do", f'no node has the label "{printable(request.key)}"{offered}')
    if request.value is None:
        infos = scratch.cluster.nodes
        pods = {value: sum(len(infos[it.name].pods) for it in nodes) for value, nodes in domains.items()}
        return sorted(domains, key=lambda it: (-pods[it], it))
    if request.value not in domains:
        named = f"{printable(request.key)}={printable(request.value)}"
        offered = similar(printable(request.value), sorted(domains))
        raise VerbFailure("nothing_to_do", f'no node has the label "{named}"{offered}')
    return [request.value]


def _running(scratch: ScratchCluster, domains: Mapping[str, Sequence[Node]]) -> dict[Workload, Counter[str]]:
    """Return the number of pods with a node, by workload and domain (``""``: no label), without Terminating pods."""
    values = {node.name: value for value, nodes in domains.items() for node in nodes}
    running: dict[Workload, Counter[str]] = {}
    for pod in scratch.cluster.pods():
        if pod.node_name and not pod.terminating:
            running.setdefault(_workload(pod), Counter())[values.get(pod.node_name, "")] += 1
    return running


def _domain(
    scratch: ScratchCluster,
    domain: LostDomain,
    running: Mapping[Workload, Counter[str]],
    budget: Budget,
    *,
    is_alone: bool,
) -> Steps:
    """Return a ``DomainLoss`` as JSON. ``is_alone``: no other domain is requested.

    The answer for a domain that is alone has up to ``MOST_WORKLOADS`` affected workloads, and changes of a field.
    """
    losses: dict[LossVariant, _Losses] = {}
    ties = VolumeTies(scratch, domain.names)
    tied = Counter(_workload(it) for it in domain.pods if not it.terminating and ties.has(it))
    was_over = evicts_nothing = False
    for left, variant in zip(range(len(_ORDER), 0, -1), _ORDER, strict=True):
        if not budget.is_over:
            trial, part = LossTrial(scratch, domain, variant), budget.part(left)
            losses[variant] = yield from _carried_out(scratch, trial, variant, part, is_alone=is_alone)
            yield from trial.undo()
            evicts_nothing |= trial.evicts_nothing
            was_over |= part.was_over
    budget.was_over |= was_over
    workloads = sorted({key for of_variant in losses.values() for key in of_variant}, key=lambda it: _rank(it, losses))
    if not is_alone:
        workloads = [it for it in workloads if any(_stopped(of.get(it, _NOTHING).count) for of in losses.values())]
    most = MOST_WORKLOADS if is_alone else MOST_WORST
    return {
        "value": domain.value,
        "nodes": len(domain.nodes),
        "pods": len(domain.pods) + domain.static,
        "staticPods": domain.static,
        "evictsNothing": evicts_nothing,
        **{it.value: _total(losses[it]) if it in losses else None for it in LossVariant},
        "workloads": [_row(it, losses, running.get(it, Counter()), tied[it]) for it in workloads[:most]],
        "moreWorkloads": max(0, len(workloads) - most),
    }


def _carried_out(
    scratch: ScratchCluster, trial: LossTrial, variant: LossVariant, budget: Budget, *, is_alone: bool
) -> Generator[str | None, None, _Losses]:
    """Simulate one variant. If ``is_alone``, find changes that help the workloads with the most waiting pods."""
    yield from trial.begin()
    pods = [recreated(it) for it in trial.lost if is_recreated(it) and not stays_terminating(it, variant)]
    for _ in trial.placer.placing(pods, trial.placements):
        number = len(trial.placements)
        yield f"{variant.value}: placing pods: {number} of {len(pods)}" if is_alone and number % _STEP == 0 else None
        if budget.is_over:
            break
    losses = _counted(trial, variant)
    worst = sorted((it for it in losses.items() if it[1].waiting), key=lambda it: (-len(it[1].waiting), it[0]))
    fields = OneField(scratch, trial.placer_that_evicts_nothing(), budget)
    for key, loss in worst[:MOST_CHANGED] if is_alone else ():
        yield f"{variant.value}: trying changes of {key[1]} {key[2]}"
        loss.change = yield from fields.best(loss.waiting, partial(_on_nodes, scratch, key))
        loss.tried = not budget.is_over
    return losses


def _on_nodes(scratch: ScratchCluster, key: Workload) -> list[Pod]:
    """Return the pods of a workload that have a node."""
    return [it for it in scratch.cluster.pods_in(key[0]) if it.node_name and _workload(it) == key]


def _counted(trial: LossTrial, variant: LossVariant) -> _Losses:
    """Count each workload's pods after a loss. If a new pod was evicted, only the pod that replaces it is counted."""
    losses: _Losses = {}

    def of(pod: Pod) -> _WorkloadLoss:
        return losses.setdefault(_workload(pod), _WorkloadLoss())

    new = {it.pod.uid for it in trial.placements}
    gone = {it.uid for it in trial.placer.victims}
    for pod in trial.lost:
        count = of(pod).count
        count.lost += 1
        count.not_recreated += not is_recreated(pod)
        count.not_ended += stays_terminating(pod, variant)
    for pod in trial.placer.victims:
        if pod.uid not in new and not pod.terminating:
            count = of(pod).count
            count.evicted += 1
            count.not_recreated += pod.owner is None
    for placement in trial.placements:
        if placement.pod.uid not in gone:
            loss = of(placement.pod)
            loss.count.placed += not placement.waits
            loss.count.ties += placement.ties > 0
            loss.count.after_grace += placement.pod.uid in trial.placer.after_grace
            loss.count.waiting += placement.waits
            if placement.waits:
                loss.waiting.append(placement)
    for loss in losses.values():
        count = loss.count
        known = count.placed + count.waiting + count.not_recreated + count.not_ended
        count.not_reached = count.lost + count.evicted - known
    return losses


_NOTHING: Final = _WorkloadLoss()


def _workload(pod: Pod) -> Workload:
    return (pod.namespace, *workload_of(pod))


def _stopped(count: LossCount) -> int:
    """Return the number of pods that wait or stay Terminating."""
    return count.waiting + count.not_ended


def _rank(key: Workload, losses: Mapping[LossVariant, _Losses]) -> tuple[Any, ...]:
    """Return the sort key, worst first: by ``_stopped``, then by lost pods, each in the variant with the most."""
    counts = [of_variant.get(key, _NOTHING).count for of_variant in losses.values()]
    return (-max(_stopped(it) for it in counts), -max(it.lost for it in counts), key)


def _worst_first(domain: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of a domain, like ``_rank`` for workloads."""
    counts = [domain[it.value] for it in LossVariant if domain[it.value] is not None]
    most = max((it["waiting"] + it["notEnded"] for it in counts), default=-1)
    return (-most, -max((it["lost"] for it in counts), default=-1), domain["value"])


def _total(losses: _Losses) -> Mapping[str, Any]:
    """Return the sum of the counts of all workloads."""
    sums: Counter[str] = Counter()
    for loss in losses.values():
        sums.update(_count(loss.count))
    return {**_count(LossCount()), **sums}


def _count(count: LossCount) -> dict[str, int]:
    return {
        "lost": count.lost,
        "evicted": count.evicted,
        "placed": count.placed,
        "afterGrace": count.after_grace,
        "ties": count.ties,
        "waiting": count.waiting,
        "notRecreated": count.not_recreated,
        "notEnded": count.not_ended,
        "notReached": count.not_reached,
    }


def _row(key: Workload, losses: Mapping[LossVariant, _Losses], running: Counter[str], tied: int) -> Mapping[str, Any]:
    """Return a ``LostWorkload`` as JSON."""
    namespace, kind, name = key
    return {
        "namespace": namespace,
        "kind": kind,
        "name": name,
        "running": running.total(),
        "runningIn": dict(sorted(running.items(), key=lambda it: (-it[1], it[0]))[:MOST_RUNNING_IN]),
        "tiedByVolume": tied,
        **{it.value: _outcome(losses[it].get(key, _NOTHING)) if it in losses else None for it in LossVariant},
    }


def _outcome(loss: _WorkloadLoss) -> Mapping[str, Any]:
    return {
        **_count(loss.count),
        "reasons": [*_reasons(loss.waiting)],
        "change": loss.change,
        "changesTried": loss.tried,
    }


def _reasons(waiting: Sequence[Placement]) -> Iterable[Mapping[str, Any]]:
    """Yield at most three reasons. ``count``: largest number of nodes rejected for one pod; 0 if the pod is gated."""
    nodes: dict[Status, int] = {}
    for placement in waiting:
        gate = () if placement.gate.is_success else ((placement.gate, 0),)
        for status, count in (*gate, *placement.rejections):
            plain = replace(status, until=None)
            nodes[plain] = max(count, nodes.get(plain, 0))
    for status, count in sorted(nodes.items(), key=lambda it: (-it[1], it[0].plugin, it[0].reasons))[:_MOST_REASONS]:
        yield {"count": count, **status_as_json(status)}
