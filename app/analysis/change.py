"""Change of a pod, a node or the pods on nodes that could open nodes for a pod, before it is proved.

Not here: which changes are tried (``app.analysis.changes``) and the proof (``app.analysis.remedies``).
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from app.kube.core_v1 import Node, Pod, PodSpec

NODES_PER_STEP: Final = 128
PODS_PER_STEP: Final = 512
MOST_TRIED_OF_A_KIND: Final = 4
"""Maximum number of nodes to uncordon, of taints to tolerate, and of domains with fewer pods for each constraint."""

SPREAD: Final = frozenset({"PodTopologySpread"})


class Change(Struct, frozen=True):
    """Change to try, and the ``pod`` after it. ``without``: pods that it deletes. ``node``: the node that it changes.

    ``names``: nodes that can fit after it. ``others``: nodes that can fit too, and are judged only if some of ``names``
    fit. ``ignores``: plugins that reject no node after it. ``reads``: in-tree plugins that read what it changes.
    ``shown``: false if only its result is of interest. ``instead``: true if it replaces the last remedy, once proved.
    """

    sort: str
    text: str
    pod: Pod
    names: Collection[str]
    others: Collection[str] = ()
    without: tuple[Pod, ...] = ()
    node: Node | None = None
    ignores: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    shown: bool = True
    instead: bool = False


Trials: TypeAlias = Generator[Change | None, Any, None]
"""Changes to try, and ``None`` after a step of a long search. Receives the nodes that fit after each change."""


def with_spec(pod: Pod, **changes: Any) -> Pod:
    """Return the pod with some fields of its spec replaced."""
    spec: PodSpec = replace(pod.spec, **changes)
    return replace(pod, spec=spec)
