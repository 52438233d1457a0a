"""Rules of assumed pods: in flight, reserved, accepted, unclear, gone."""

import pytest

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


class TestUnclear:
    """A pod whose bind may have succeeded or failed keeps its place, and is uncertain until it is settled."""

    @pytest.mark.parametrize("accepted", [False, True])
    def test_it_is_uncertain_and_keeps_its_place(self, accepted: bool) -> None:
        assumed = AssumedPods()
        assumed.put(POD)
        if accepted:
            assumed.accept(POD.uid)

        assert assumed.doubt(POD.uid)

        assert (1, POD, (POD,), (POD,), True) == (
            len(assumed),
            assumed.get(POD.uid),
            assumed.in_flight(),
            assumed.unconfirmed(),
            assumed.is_unclear(POD.uid),
        )

    def test_a_newer_form_stays_where_the_pod_is(self) -> None:
        assumed = AssumedPods()
        assumed.put(POD)
        assumed.doubt(POD.uid)

        assumed.put(NEWER)

        assert ((NEWER,), (NEWER,)) == (assumed.in_flight(), assumed.unconfirmed())

    def test_whoever_waits_is_told_when_it_is_settled_and_not_before(self) -> None:
        assumed, told = AssumedPods(), list[str]()
        assumed.on_settled(lambda: told.append("settled"))
        assumed.put(POD)

        assumed.doubt(POD.uid)
        assert [] == told
        assert POD == assumed.remove(POD.uid)
        assert (["settled"], 0) == (told, len(assumed))

    def test_only_a_bind_in_flight_or_accepted_can_be(self) -> None:
        assumed = AssumedPods()
        assumed.put(POD)
        assumed.reserve(POD.uid)

        assert (False, False) == (assumed.doubt("unknown"), assumed.doubt(POD.uid))
        assert ((), (POD,)) == (assumed.unconfirmed(), assumed.reserved())

    def test_what_the_api_server_has_taken_is_not_confirmed_yet(self) -> None:
        assumed = AssumedPods()
        assumed.put(POD)
        assert () == assumed.unconfirmed()

        assumed.accept(POD.uid)

        assert ((POD,), False) == (assumed.unconfirmed(), assumed.is_unclear(POD.uid))
