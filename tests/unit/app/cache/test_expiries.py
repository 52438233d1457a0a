"""The earliest end of each node and plugin counts; when it has passed, the node counts as changed."""

from math import inf

from app.cache.changes import NodeChanges
from app.cache.expiries import Expiries


def test_a_node_counts_as_changed_once_a_verdict_ends() -> None:
    changes = NodeChanges()
    expiries = Expiries(changes)
    for node, plugin, until in (("n1", "A", 20.0), ("n1", "A", 10.0), ("n1", "B", 30.0), ("n2", "A", inf)):
        expiries.add(node, plugin, until)

    ended = [(now, sorted(expiries.expire(now)), changes.now) for now in (9.0, 10.0, 25.0, 30.0, inf)]

    assert [(9.0, [], 0), (10.0, ["A"], 1), (25.0, [], 1), (30.0, ["B"], 2), (inf, [], 2)] == ended
    assert ["n1"] == changes.since(0)
