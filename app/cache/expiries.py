"""Times at which cached verdicts end. When one has passed, its node counts as changed, so that it is judged anew."""

from __future__ import annotations

from math import inf

from app.cache.changes import NodeChanges


class Expiries:
    """For each node and plugin, the earliest end of a verdict: a plugin that judges anew gives the next one."""

    def __init__(self, node_changes: NodeChanges) -> None:
        self._node_changes = node_changes
        self._ends: dict[tuple[str, str], float] = {}
        self._next = inf

    def add(self, node: str, plugin: str, until: float) -> None:
        """Note that a verdict of the plugin on the node ends then, in seconds since 1970; ``inf`` never."""
        if until < self._ends.get((node, plugin), inf):
            self._ends[node, plugin] = until
            self._next = min(self._next, until)

    def expire(self, now: float) -> frozenset[str]:
        """Have nodes judged anew whose verdicts ended, and return the plugins that gave these."""
        if now < self._next:
            return frozenset()
        ended = [key for key, until in self._ends.items() if until <= now]
        for key in ended:
            del self._ends[key]
        for node in dict.fromkeys(node for node, _ in ended):
            self._node_changes.note(node)
        self._next = min(self._ends.values(), default=inf)
        return frozenset(plugin for _, plugin in ended)
