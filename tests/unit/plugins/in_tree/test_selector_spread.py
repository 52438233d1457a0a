"""What the vectors of SelectorSpread in ``tests/conformance`` do not ask: what is too long, and which pods matter."""

from typing import Any, Final

import pytest

from app.kube.meta_v1 import LARGEST_PART
from app.runtime.guard import PluginError
from tests.builders import JsonObject, constraint, make_node, make_pod, service_object
from tests.harness import World, only

NAME: Final = "SelectorSpread"
WEB: Final = {"app": "web"}
POD: Final = make_pod("new", labels=WEB)
PEER: Final = make_pod("peer", labels=WEB)


def world(profile: JsonObject | None = None) -> World:
    return World(make_node("n1"), service_object("web", WEB), profile=profile or only(NAME))


def test_what_is_too_long_to_be_read_is_not_judged() -> None:
    long = make_pod("new", labels={**WEB, "x": "y" * (LARGEST_PART + 1)})

    assert {} == world().score(long)


def test_without_prescore_it_fails_in_kube_schedulers_words() -> None:
    profile = only(NAME)
    profile["plugins"]["preScore"] = {"disabled": [{"name": NAME}]}

    with pytest.raises(PluginError, match='reading "PreScoreSelectorSpread" from cycleState: not found'):
        world(profile).score(POD)


@pytest.mark.parametrize(
    ("pod", "other", "expected"),
    [
        pytest.param(POD, PEER, True, id="a peer"),
        pytest.param(POD, make_pod("db", labels={"app": "db"}), False, id="no peer"),
        pytest.param(POD, make_pod("peer", labels=WEB, namespace="other"), False, id="elsewhere"),
        pytest.param(make_pod("db", labels={"app": "db"}), PEER, False, id="one without peers"),
        pytest.param(make_pod("n", labels=WEB, spread=[constraint()]), PEER, False, id="its own constraints"),
    ],
)
def test_whose_place_matters(pod: Any, other: Any, expected: bool) -> None:
    assert expected == world().framework.scoring.score_depends_on(pod, other)
