"""Change that might let nodes accept a pod: of the pod itself, of its home, of a node, or of the pods on nodes.

A change opens a node if the pod fits the node after the change. Not here: which changes are tried
(``app.analysis.changes``), and the proof that a change opens nodes (``app.analysis.remedies``).
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from app.kube.core_v1 import Node, Pod, PodSpec

NODES_PER_STEP: Final = 128
PODS_PER_STEP: Final = 512
"""Numbers of nodes and of pods that a search visits in one step."""

MOST_TRIED_OF_A_KIND: Final = 4
"""Maximum number of cordoned nodes, of taints, and, for each constraint, of domains, for which changes are tried."""

SPREAD: Final = frozenset({"PodTopologySpread"})


class Change(Struct, frozen=True):
    """Change to try.

    ``sort``: constant name of the kind of change. ``text``: the change as text for users. ``pod``: the pod after the
    change. ``without``: pods that the change deletes. ``node``: the node after the change, if it changes one.
    ``names``: nodes that the change might open. ``others``: further such nodes, judged only if it opens some of
    ``names``. ``ignores``: plugins that reject no node after the change. ``reads``: in-tree plugins that read what the
    change affects. ``shown``: false if the change is tried, but is never a remedy. ``instead``: true if the change,
    once proved, replaces the last remedy.
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
"""Generator of changes to try; ``None`` ends a step of a long search. For each change, the caller sends the opened
nodes.
"""


def with_spec(pod: Pod, **changes: Any) -> Pod:
    """Return the pod with some fields of its spec replaced."""
    spec: PodSpec = replace(pod.spec, **changes)
    return replace(pod, spec=spec)
