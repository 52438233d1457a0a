"""Compares the resources that a pod requests with the room on all nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from app.analysis.judging import Judge
from app.kube.core_v1 import Pod
from app.kube.extras import NotDecoded

_NODES_PER_STEP: Final = 128


class ResourceNeed(Struct, frozen=True):
    """A requested resource: amount ``requested``, sum that is ``free`` on all nodes, and the most free on one ``node``.

    Amounts are in the units of ``ResourceList``.
    """

    name: str
    requested: int
    free: int
    most_free: int
    node: str


def add_needs(judge: Judge, pod: Pod, names: Sequence[str], needs: list[ResourceNeed]) -> Iterator[None]:
    """Add up the free amount of each resource that the pod requests on the nodes ``names``, in short steps.

    The same pods take room as for the filters of ``judge``. Nothing is added if the snapshot lacks requests.
    """
    try:
        requests = pod.spec.resources.requests
    except NotDecoded:
        return
    free, most = dict.fromkeys(requests, 0), dict.fromkeys(requests, (0, ""))
    for start in range(0, len(names), _NODES_PER_STEP):
        for node in judge.crowded(pod, names[start : start + _NODES_PER_STEP]):
            for name, left in node.free(requests).items():
                free[name] += left
                if left > most[name][0]:
                    most[name] = (left, node.name)
        yield
    needs += (ResourceNeed(name, amount, free[name], *most[name]) for name, amount in requests.items())
