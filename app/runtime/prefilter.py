"""Result of PreFilter: a status, and the nodes to which plugins restrict the search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from app.framework.node_info import Candidates
from app.framework.status import SUCCESS, Status, unresolvable

_OUTSIDE: Final = "node(s) didn't satisfy plugin(s) {}"


class PreFiltered(Struct, frozen=True):
    """Merged result of all PreFilter plugins. ``names``: nodes that every plugin allows, ``None`` if no plugin
    restricts the nodes. ``narrowed_by``: names of the plugins that restrict them.
    """

    status: Status
    names: frozenset[str] | None = None
    narrowed_by: tuple[str, ...] = ()

    def outside(self, nodes: Candidates) -> dict[str, Status]:
        """Return the rejection of each candidate that is outside ``names``, by node name."""
        names = self.names
        if names is None:
            return {}
        status = self.rejection
        return {name: status for name in nodes.names if name not in names}

    @property
    def rejection(self) -> Status:
        """Rejection of a node outside ``names``."""
        return unresolvable(_OUTSIDE.format(_bracketed(self.narrowed_by)))

    def narrowed(self, plugin: str, names: frozenset[str]) -> PreFiltered:
        """Return the result after one more plugin allows only ``names``. If no node is left, the result is a
        rejection.
        """
        by = (*self.narrowed_by, plugin)
        both = names if self.names is None else self.names & names
        if both:
            return PreFiltered(SUCCESS, both, by)
        if len(by) == 1:
            return PreFiltered(unresolvable(f"node(s) didn't satisfy plugin {plugin}"), both, by)
        return PreFiltered(unresolvable(f"node(s) didn't satisfy plugin(s) {_bracketed(by)} simultaneously"), both, by)


NOT_NARROWED: Final = PreFiltered(SUCCESS)
"""Result of PreFilter if no plugin rejects the pod or restricts the nodes."""


def _bracketed(names: Iterable[str]) -> str:
    return f"[{' '.join(sorted(names))}]"
