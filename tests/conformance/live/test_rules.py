"""What is compared on the control plane is counted right, and a case comes to be stored as it was drawn."""

from collections.abc import Mapping

import pytest

from tests.conformance.draft import HOSTNAME
from tests.conformance.live import whole
from tests.conformance.live.loading import Unloadable, trial_of
from tests.conformance.live.panel import Ruling
from tests.conformance.live.prioritize import Setting, Tally, count
from tests.conformance.live.recorder import Heard, Json

TEN = Setting(10, 2)
FINE = Setting(100, 1, others=5)
EXPECTED: Json = {"filter": {}}


def ruling(chosen: str, totals: Mapping[str, int], scores: Mapping[str, Mapping[str, int]] | None = None) -> Ruling:
    return Ruling(Heard(passed=frozenset(totals), target=chosen), scores or {}, totals)


def stock(**scores: tuple[int, int]) -> Ruling:
    """By node the sum of the other plugins and the score of PodTopologySpread, which weighs 2."""
    shown = {node: {"Others": others, "PodTopologySpread": 2 * spread} for node, (others, spread) in scores.items()}
    totals = {node: sum(each.values()) for node, each in shown.items()}
    return ruling(max(totals, key=totals.__getitem__), totals, shown)


@pytest.mark.parametrize(
    ("setting", "score", "points"),
    [(TEN, 100, 200), (TEN, 97, 200), (TEN, 95, 200), (TEN, 94, 180), (TEN, 4, 0), (FINE, 97, 970), (FINE, 1, 10)],
)
def test_points_are_the_nearest_and_a_half_one_goes_up(setting: Setting, score: int, points: int) -> None:
    assert setting.points(score) == points


@pytest.mark.parametrize(
    ("setting", "margin", "clear"),
    [(TEN, 20, True), (TEN, 19, False), (TEN, 0, False), (FINE, 1, True), (FINE, 0, False)],
)
def test_a_margin_is_clear_if_rounding_cannot_level_it(setting: Setting, margin: int, clear: bool) -> None:
    assert setting.is_clear(margin) == clear


def test_a_scale_of_100_with_others_times_five_is_the_default_profile_times_five() -> None:
    assert FINE.spread_weight == 2 * FINE.others
    assert [TEN.spread_weight, Setting(20, 1).spread_weight, Setting(100, 1).spread_weight] == [2, 2, 10]


def test_a_pod_that_rounding_sent_elsewhere_differs_and_is_not_wrong() -> None:
    """In tree a leads, 296 to 293; 98 and 95 both become 200 points, and then b leads, 303 to 300."""
    tally = Tally("10")
    count(TEN, tally, "web", stock(a=(100, 98), b=(103, 95)), ruling("b", {"a": 300, "b": 303}))

    assert (tally.pods, tally.in_argmax, tally.equal, tally.differing) == (1, 1, 0, 1)
    assert (tally.worst_loss, tally.clear_margin, tally.wrong) == (3, 0, [])


@pytest.mark.parametrize(
    ("chosen", "totals"),
    [
        pytest.param("b", {"a": 300, "b": 280}, id="not the highest total"),
        pytest.param("a", {"a": 300, "b": 260}, id="a score off the scale"),
        pytest.param("a", {}, id="no totals at all"),
    ],
)
def test_what_breaks_the_rules_is_told(chosen: str, totals: Mapping[str, int]) -> None:
    tally = Tally("10")
    count(TEN, tally, "web", stock(a=(100, 100), b=(100, 90)), ruling(chosen, totals))

    assert len(tally.wrong) == 1


def case_with(labels: Mapping[str, str], *constraints: Json) -> Json:
    metadata = {"name": "pending", "namespace": "default", "labels": dict(labels)}
    spec = {"schedulerName": "default-scheduler", "topologySpreadConstraints": list(constraints)}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {HOSTNAME: "n1"}}}
    pod = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "nominatedNodeName": "n1"}}
    return {"name": "case", "config": {"schedulerName": "default-scheduler"}, "objects": [node], "pod": pod}


def keyed(value: str | None) -> Json:
    """A constraint with matchLabelKeys [version], merged as of a pod that had this version."""
    merged = [{"key": "version", "operator": "In", "values": [value]}] if value else []
    return {"labelSelector": {"matchExpressions": merged} if merged else {}, "matchLabelKeys": ["version"]}


@pytest.mark.parametrize(
    ("own", "merged", "at_first", "later"),
    [
        pytest.param({"version": "v1"}, "v1", {"version": "v1"}, None, id="as it was"),
        pytest.param({"version": "v2"}, "v1", {"version": "v1"}, {"version": "v2"}, id="changed since"),
        pytest.param({"version": "v2"}, None, {}, {"version": "v2"}, id="added since, nothing merged"),
        pytest.param({}, "v1", {"version": "v1"}, {}, id="gone since"),
    ],
)
def test_a_pod_starts_with_the_labels_that_were_merged(
    own: Json, merged: str | None, at_first: Json, later: Json | None
) -> None:
    trial = trial_of(case_with(own, keyed(merged)), EXPECTED, 7, "profile-1")

    assert trial.pod["metadata"]["labels"] == at_first
    assert trial.labels == later
    assert trial.pod["spec"]["topologySpreadConstraints"] == [keyed(None)]
    assert trial.constraints == [keyed(merged)]


def test_a_pod_that_never_had_both_labels_cannot_be_loaded() -> None:
    with pytest.raises(Unloadable, match="version"):
        trial_of(case_with({"version": "v1"}, keyed("v1"), keyed("v2")), EXPECTED, 7, "profile-1")


def test_a_terminating_pod_with_a_nomination_is_no_matter_to_compare() -> None:
    case = case_with({})
    waiting = {
        **case["pod"],
        "kind": "Pod",
        "metadata": {"name": "p1", "namespace": "default", "deletionTimestamp": "x"},
    }
    case["objects"].append(waiting)
    with pytest.raises(Unloadable, match="terminating"):
        trial_of(case, EXPECTED, 7, "profile-1")


def test_nodes_get_names_of_their_own_wherever_they_stand() -> None:
    trial = trial_of(case_with({}), {"filter": {"n1": {"code": "Success"}}}, 7, "profile-1")

    assert trial.nodes == {"c7-n1"}
    assert trial.objects[0]["metadata"]["labels"] == {HOSTNAME: "c7-n1"}
    assert (trial.nominated, list(trial.expected["filter"])) == ("c7-n1", ["c7-n1"])
    assert trial.pod["spec"]["schedulerName"] == "profile-1"


def judged(chosen: str, points: Mapping[str, int], passed: str = "abc") -> whole.Tally:
    """What is counted of a pod whose stock totals, of plugins that weigh 4, are 400, 200 and 198 of 400."""
    tally = whole.Tally()
    scores = {name: {"TaintToleration": 0, "NodeResourcesFit": 0} for name in "abc"}
    theirs = ruling("a", {"a": 400, "b": 200, "c": 198}, scores)
    whole.count(tally, 4, "p", theirs, Ruling(Heard(passed=frozenset(passed), scored=points, target=chosen), {}, {}))
    return tally


def test_a_pod_left_to_homeport_has_the_points_of_the_totals_and_the_winner() -> None:
    good = {"a": 100, "b": 50, "c": 50}

    assert whole.Tally(pods=1, equal=1, refused=1, scored=1, unique=1) == judged("a", good)
    assert [0] * 3 == [
        it.equal for it in (judged("b", good), judged("a", {**good, "c": 49}), judged("a", good, passed="ab"))
    ]
    assert 1 == len(judged("b", good).wrong)
