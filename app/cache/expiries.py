"""Times at which cached verdicts on nodes expire. A node is then marked as changed, so that it is evaluated again."""

from __future__ import annotations

from math import inf

from app.cache.changes import NodeChanges


class Expiries:
    """Earliest time at which a cached verdict expires, for each node and plugin.

    Later times are not stored: after the earliest one, the node is evaluated again, and this evaluation adds the next
    time.
    """

    def __init__(self, node_changes: NodeChanges) -> None:
        self._node_changes = node_changes
        self._ends: dict[tuple[str, str], float] = {}
        self._next = inf

    def add(self, node: str, plugin: str, until: float) -> None:
        """Add the time at which a verdict of the plugin on the node expires, unless an earlier time is stored.

        ``until``: seconds since 1970; ``inf`` for a verdict that does not expire.
        """
        if until < self._ends.get((node, plugin), inf):
            self._ends[node, plugin] = until
            self._next = min(self._next, until)

    def expire(self, now: float) -> frozenset[str]:
        """Mark each node with an expired verdict as changed. Return the plugins that gave these verdicts.

        ``now``: seconds since 1970.
        """
        if now < self._next:
            return frozenset()
        ended = [key for key, until in self._ends.items() if until <= now]
        for key in ended:
            del self._ends[key]
        for node in dict.fromkeys(node for node, _ in ended):
            self._node_changes.note(node)
        self._next = min(self._ends.values(), default=inf)
        return frozenset(plugin for _, plugin in ended)
