"""Rules of assumed pods: in flight, accepted, gone."""

from app.cache.assumed import AssumedPods
from tests.builders import make_pod

POD = make_pod("a", node="n1")
NEWER = make_pod("a", node="n1", labels={"v": "2"})


def test_an_assumed_pod_is_in_flight_until_it_is_accepted() -> None:
    assumed = AssumedPods()

    assumed.put(POD)
    assert (1, POD, (POD,)) == (len(assumed), assumed.get(POD.uid), assumed.in_flight())

    assumed.accept(POD.uid)
    assert (1, POD, ()) == (len(assumed), assumed.get(POD.uid), assumed.in_flight())


def test_a_newer_form_stays_where_the_pod_is() -> None:
    assumed = AssumedPods()
    assumed.put(POD)
    assumed.put(NEWER)
    assert (NEWER,) == assumed.in_flight()

    assumed.accept(POD.uid)
    assumed.put(POD)
    assert ((), POD) == (assumed.in_flight(), assumed.get(POD.uid))


def test_a_pod_is_removed_from_wherever_it_is() -> None:
    assumed = AssumedPods()
    assumed.put(POD)
    assert POD == assumed.remove(POD.uid)

    assumed.put(POD)
    assumed.accept(POD.uid)
    assert POD == assumed.remove(POD.uid)
    assert (0, None) == (len(assumed), assumed.get(POD.uid))


def test_a_pod_nobody_assumed_is_none() -> None:
    assumed = AssumedPods()

    assumed.accept("unknown")

    assert (0, None, None) == (len(assumed), assumed.get("unknown"), assumed.remove("unknown"))
