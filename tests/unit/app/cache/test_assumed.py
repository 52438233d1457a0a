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


class TestReserved:
    """A pod that waits at Permit keeps its place, and is not waited for."""

    @staticmethod
    def assumed() -> tuple[AssumedPods, list[str]]:
        """With a list of what is told."""
        assumed, told = AssumedPods(), list[str]()
        assumed.on_settled(lambda: told.append("settled"))
        assumed.on_lost(told.append)
        assumed.put(POD)
        return assumed, told

    def test_it_is_not_in_flight_and_whoever_waits_for_it_is_told(self) -> None:
        assumed, told = self.assumed()

        assumed.reserve(POD.uid)

        assert (1, POD, (), (POD,)) == (len(assumed), assumed.get(POD.uid), assumed.in_flight(), assumed.reserved())
        assert ["settled"] == told

    def test_it_goes_on_in_flight(self) -> None:
        assumed, told = self.assumed()
        assumed.reserve(POD.uid)

        assumed.proceed(POD.uid)
        assert ((POD,), (), ["settled"]) == (assumed.in_flight(), assumed.reserved(), told)

        assumed.accept(POD.uid)
        assert ((), (), POD) == (assumed.in_flight(), assumed.reserved(), assumed.get(POD.uid))

    def test_a_newer_form_stays_where_the_pod_is(self) -> None:
        assumed, _ = self.assumed()
        assumed.reserve(POD.uid)

        assumed.put(NEWER)

        assert ((), (NEWER,)) == (assumed.in_flight(), assumed.reserved())

    def test_that_it_is_gone_is_told_by_its_name(self) -> None:
        assumed, told = self.assumed()
        assumed.reserve(POD.uid)

        assert (POD, 0) == (assumed.remove(POD.uid), len(assumed))
        assert ["settled", POD.uid] == told

    def test_what_is_not_in_flight_is_neither_reserved_nor_goes_on(self) -> None:
        assumed, told = self.assumed()
        assumed.accept(POD.uid)

        assumed.reserve(POD.uid)
        assumed.proceed(POD.uid)
        assumed.reserve("unknown")

        assert ((), (), ["settled"]) == (assumed.in_flight(), assumed.reserved(), told)
