"""What `homeport plugins` shows. Plugins of other distributions: tests/contract/test_third_party.py."""

from app.commands.plugins import listing
from plugins import DEFAULT_WEIGHTS
from plugins.in_tree.node_name import SPEC as NODE_NAME
from plugins.in_tree.pod_topology_spread import SPEC as SPREAD
from plugins.in_tree.taint_toleration import SPEC as TAINTS
from plugins.sticky_node import SPEC as STICKY
from tests.fakes import Delta, spec_of


def test_a_plugin_with_its_weight_in_each_preset() -> None:
    """Of one that does not score it matters only whether it is there."""
    head, *rows = listing((SPREAD, STICKY, NODE_NAME, TAINTS), (spec_of(Delta),), DEFAULT_WEIGHTS).splitlines()
    columns = [head.index(it) for it in ("DELEGATED", "COMPLETE", "FROM")]

    assert {
        "PodTopologySpread": ["2", "2", "Homeport"],
        "StickyNode": ["1", "1", "Homeport"],
        "NodeName": ["-", "yes", "Homeport"],
        "TaintToleration": ["-", "3", "Homeport"],
        "Delta": ["-", "-", "tests.fakes"],
    } == {row.split()[0]: [row[at:].split()[0] for at in columns] for row in rows}


def test_two_of_a_name_are_both_shown() -> None:
    """Whoever is told that a name is taken looks here for the other one."""
    _, *rows = listing((NODE_NAME,), (NODE_NAME,), DEFAULT_WEIGHTS).splitlines()

    assert [("NodeName", "Homeport"), ("NodeName", "plugins.in_tree.node_name")] == [
        (row.split()[0], row.split()[-1]) for row in rows
    ]
