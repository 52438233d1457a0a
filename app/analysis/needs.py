"""Compares the resources that a pod requests with the free amounts of all nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from app.analysis.judging import Judge
from app.kube.core_v1 import Pod
from app.kube.extras import NotDecoded

_NODES_PER_STEP: Final = 128


class ResourceNeed(Struct, frozen=True):
    """Requested resource. ``requested``: amount. ``free``: sum of the free amounts of all nodes.

    ``most_free``: largest free amount of one node. ``node``: name of that node; empty if no node has a free amount.
    Amounts are in the units of ``ResourceList``.
    """

    name: str
    requested: int
    free: int
    most_free: int
    node: str


def add_needs(judge: Judge, pod: Pod, names: Sequence[str], needs: list[ResourceNeed]) -> Iterator[None]:
    """Add a need for each resource that the pod requests, with the free amounts on the nodes ``names``, in short steps.

    Free amounts are computed from the pods that the filters of ``judge`` count. No need is added if requests
    are not decoded.
    """
    try:
        requests = pod.spec.resources.requests
    except NotDecoded:
        return
    free, most = dict.fromkeys(requests, 0), dict.fromkeys(requests, (0, ""))
    for start in range(0, len(names), _NODES_PER_STEP):
        for node in judge.with_nominated(pod, names[start : start + _NODES_PER_STEP]):
            for name, left in node.free(requests).items():
                free[name] += left
                if left > most[name][0]:
                    most[name] = (left, node.name)
        yield
    needs += (ResourceNeed(name, amount, free[name], *most[name]) for name, amount in requests.items())
