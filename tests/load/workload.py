"""Workloads as they are written down in ``workloads/*.yaml``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

FOLDER: Final = Path(__file__).parent / "workloads"
SELECTED: Final = {"color": "blue"}
"""The labels every constraint selects, as scheduler_perf has them."""


_EVEN: Final = 20
"""Nodes by the score, and existing pods by the node: every zone and every host starts with as many."""


class Constraint(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A spread constraint over pods that are ``SELECTED``."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {**found, "labelSelector": {"matchLabels": SELECTED}}


class Size(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How large a cluster and how many pods; ``existing`` ones are bound before anything is measured."""

    name: str
    nodes: int
    measured: int
    existing: int = 0
    labels: tuple[str, ...] = ()
    percentage_of_nodes_to_score: int | None = None
    target: float | None = None

    def scaled(self, by: float) -> Size:
        """A smaller one of the same shape, to try the harness; its target says nothing any more."""
        if by == 1:
            return self
        nodes = max(1, round(self.nodes * by / _EVEN)) * _EVEN
        existing = round(self.existing * by / nodes) * nodes
        return replace(self, nodes=nodes, measured=max(10, round(self.measured * by)), existing=existing, target=None)


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    """Pods with these constraints, at several sizes."""

    name: str
    constraints: tuple[Constraint, ...]
    sizes: tuple[Size, ...]


class Case(Struct, frozen=True):
    """One workload at one size."""

    workload: Workload
    size: Size

    @property
    def name(self) -> str:
        return f"{self.workload.name}/{self.size.name}"

    def environment(self) -> tuple[int, int]:
        """Cases with the same nodes and existing pods share a cluster."""
        return self.size.nodes, self.size.existing


def load(name: str) -> tuple[Workload, ...]:
    """The workloads of a file. Raises ``msgspec.ValidationError`` for a field that nobody reads."""
    return msgspec.yaml.decode((FOLDER / f"{name}.yaml").read_bytes(), type=tuple[Workload, ...])


def chosen(workloads: Iterable[Workload], *, label: str = "", matching: str = "", scale: float = 1) -> list[Case]:
    """The cases with a label and one of the parts of the name (parted by commas), those of one cluster in a row.

    A part that ends with ``$`` is the end of a name.
    """
    cases = [
        Case(workload, size.scaled(scale))
        for workload in workloads
        for size in workload.sizes
        if not label or label in size.labels
    ]
    return sorted(
        (case for case in cases if any(it in f"{case.name}$" for it in matching.split(","))), key=Case.environment
    )
