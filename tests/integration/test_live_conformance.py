"""Homeport beside and in place of the in-tree plugin, and remedies carried out: the short form of ``make live``."""

from collections.abc import Iterator

import pytest

from tests.conformance.generate import SPREADING
from tests.conformance.live import (
    cases,
    drains,
    losses,
    prioritize,
    rebalances,
    remedies,
    scale_downs,
    simulations,
    whole,
)
from tests.conformance.live.loading import APISERVER_FLAGS
from tests.controlplane.controlplane import ControlPlane

pytestmark = pytest.mark.long

CASES = 6
STUCK = 20
DRAINS = 5
SIMULATIONS = 5
LOSSES = 5
REBALANCES = 5
SCALE_DOWNS = 5


@pytest.fixture(scope="module")
def lenient() -> Iterator[ControlPlane]:
    """Takes cases as they are, priorities as numbers included."""
    with ControlPlane(apiserver_flags=APISERVER_FLAGS) as plane:
        yield plane


def test_pods_go_where_the_totals_say(plane: ControlPlane) -> None:
    """The node chosen is among those with the highest total, in-tree scores and Homeport's points added up by us.

    It is one that the in-tree plugin would have won with whenever that is further ahead than one point of Homeport's,
    and always on a scale of 100, where no score is rounded.
    """
    tallies = prioritize.measure(plane, prioritize.SETTINGS, clusters=3, pods=20)

    for tally in tallies:
        assert tally.wrong == []
        assert tally.in_argmax == tally.pods > 40
        assert tally.clear_margin_equal == tally.clear_margin > 0
        assert tally.worst_loss < tally.step
    assert [tally.differing for tally in tallies if tally.setting.startswith("100")] == [0, 0]


def test_what_is_left_to_homeport_goes_where_kube_scheduler_would_send_it(plane: ControlPlane) -> None:
    """The preset ``complete`` behind a scheduler without filters, beside a stock one."""
    found = whole.measure(plane, clusters=3, pods=20)

    assert [] == found.wrong
    assert 60 == found.equal == found.pods
    assert 10 < found.refused
    assert 10 < found.scored
    assert 0 < found.unique


def test_two_schedulers_and_the_vectors_agree(lenient: ControlPlane) -> None:
    """A stock scheduler with its own plugin, one with Homeport in its place, and the Go plugins outside of both."""
    tallies = list(cases.judge_all(lenient, CASES))

    assert [tally.wrong for tally in tallies] == [[]] * len(SPREADING)
    assert all(tally.equal == tally.cases == CASES - tally.passed_over for tally in tallies)
    assert sum(tally.refused for tally in tallies) > len(SPREADING)
    assert sum(tally.scored for tally in tallies) > len(SPREADING)


def test_the_best_remedy_of_a_stuck_pod_lets_it_be_bound(plane: ControlPlane) -> None:
    tallies = remedies.measure(plane, STUCK)

    assert [] == [it for tally in tallies for it in tally.wrong]
    assert STUCK == sum(it.tried for it in tallies)
    assert all(it.bound == it.tried for it in tallies if it.sort != remedies.NONE)
    assert remedies.enough(tallies)
    assert len(tallies) > 4


def test_pods_go_where_a_simulation_says(plane: ControlPlane) -> None:
    tally = simulations.measure(plane, SIMULATIONS)

    assert [] == tally.wrong
    assert SIMULATIONS == tally.cases
    assert tally.equal == tally.pods > SIMULATIONS
    assert 0 < tally.unique


def test_a_drain_does_what_its_plan_says(plane: ControlPlane) -> None:
    """Pods are evicted by the Eviction API, and new ones are placed by kube-scheduler."""
    found = drains.measure(plane, DRAINS)

    assert [] == found.wrong
    assert DRAINS == found.cases == found.equal + found.passed_over
    assert 0 < found.unique
    assert 0 < found.placed


def test_after_the_loss_of_a_zone_as_many_pods_wait_as_was_said(plane: ControlPlane) -> None:
    """Each of the three variants at least once."""
    tally = losses.measure(plane, LOSSES)

    assert [] == tally.wrong
    assert LOSSES == tally.equal + tally.passed_over
    assert tally.equal > LOSSES / 2
    assert min(tally.placed, tally.waiting) > 0


def test_constraints_hold_after_the_evictions_of_a_rebalancing(plane: ControlPlane) -> None:
    """The printed calls of the Eviction API are made, and kube-scheduler places the new pods."""
    found = rebalances.measure(plane, REBALANCES)

    assert [] == found.wrong
    assert REBALANCES == found.cases == found.balanced + found.partly + found.passed_over
    assert 0 < found.balanced
    assert 0 < found.evictions


def test_spread_lasts_after_scale_downs_of_the_real_controller(plane: ControlPlane) -> None:
    """With ``scaleDown: Spread`` nearly always, and without it often not."""
    spread, without = scale_downs.measure(plane, SCALE_DOWNS)

    assert [] == scale_downs.failures([spread, without])
    assert SCALE_DOWNS == spread.histories == without.histories
    assert 20 < spread.scale_downs == without.scale_downs
    assert spread.share < without.share
