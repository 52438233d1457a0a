"""What topic ``affinity`` of ``tests/conformance`` does not ask: long pods, no PreScore, and kept verdicts."""

from typing import Any, Final

import pytest

from app.kube.meta_v1 import LARGEST_PART
from app.runtime.guard import PluginError
from tests.builders import JsonObject, expression, make_node, preferred_affinity, required_affinity, term, weighted
from tests.harness import Answer, World, only

NAME: Final = "NodeAffinity"
LONG: Final = {"podAffinity": "x" * LARGEST_PART}
SSD: Final = expression("disk", "In", "ssd")
HDD: Final = expression("disk", "In", "hdd")


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", NAME, (reason,))


UNMATCHED: Final = refused("node(s) didn't match Pod's node affinity/selector")
UNREAD: Final = refused("node(s) can't be judged: the pod's spec.affinity is longer than 64 KiB")
UNREAD_SELECTOR: Final = refused("node(s) can't be judged: the pod's spec.nodeSelector is longer than 64 KiB")


def world(profile: JsonObject | None = None) -> World:
    nodes = (make_node(name, labels={"disk": disk, "gen": "9"}) for name, disk in (("fast", "ssd"), ("slow", "hdd")))
    return World(*nodes, profile=profile or only(NAME))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"affinity": LONG}, [UNREAD] * 2, id="an affinity that is not read"),
        pytest.param(
            {"affinity": LONG, "node_selector": {"disk": "ssd"}},
            [UNREAD, UNMATCHED],
            id="not read, and refused by what is read",
        ),
        pytest.param({"node_selector": {"disk": "x" * LARGEST_PART}}, [UNREAD_SELECTOR] * 2, id="a long selector"),
    ],
)
def test_what_is_not_read_refuses_the_pod(fields: Any, expected: list[Answer]) -> None:
    found = world()

    assert expected == list(found.filter(found.pod("pending", **fields)).values())


def test_one_pod_after_another_is_judged_by_its_own_terms() -> None:
    found = world()
    one, other = (found.pod(name, affinity=required_affinity(term(it))) for name, it in (("one", SSD), ("other", HDD)))

    assert ["Success", UNMATCHED] * 2 == [found.filter(pod)["fast"] for pod in (one, other) * 2]


def test_without_prescore_it_does_without() -> None:
    profile = only(NAME)
    profile["plugins"]["preScore"] = {"disabled": [{"name": NAME}]}
    found = world(profile)

    def score(*terms: JsonObject) -> Any:
        return found.score(found.pod("pending", affinity=preferred_affinity(*terms)))[NAME]

    assert [{"fast": 100, "slow": 0}, {"fast": 0, "slow": 0}] == [score(weighted(1, term(SSD))), score()]
    with pytest.raises(PluginError, match=r'plugin "NodeAffinity" failed with: \[0\]\.matchExpressions\[0\]\.values'):
        score(weighted(1, term(expression("gen", "Gt", "x1"))))


def test_pods_of_other_labels_share_what_is_kept() -> None:
    """What it reads of a pod is its affinity alone."""
    found = world()
    one, other = (
        found.pod(name, labels={"app": name}, affinity=required_affinity(term(SSD)), node_selector={"gen": "9"})
        for name in ("one", "other")
    )

    assert found.framework.search.signatures(one) == found.framework.search.signatures(other)
