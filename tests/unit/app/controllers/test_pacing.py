"""Budgets of nominations, and nodes that in-tree filters refused."""

from __future__ import annotations

from app.controllers.pacing import (
    LOOK_SECONDS,
    MISS_SECONDS,
    MOST_MISS_SECONDS,
    NOMINATION_SECONDS,
    Attempts,
    Excluded,
    Pacing,
    shape_of,
)
from tests.builders import constraint, controller, make_node, make_pod
from tests.harness import World

SPEC = make_pod("web").spec


class TestAttempts:
    def test_the_pause_grows_with_each_miss_in_a_row(self) -> None:
        attempts, now, pauses = Attempts(), 1000.0, []
        for _ in range(7):
            attempts.missed(now)
            pauses.append(attempts.not_before - now)
            now = attempts.not_before

        assert [1.0, 4.0, 16.0, 64.0, 256.0, MOST_MISS_SECONDS, MOST_MISS_SECONDS] == pauses

    def test_misses_at_the_same_time_count_as_one(self) -> None:
        attempts = Attempts()
        for _ in range(3):
            attempts.missed(1000.0)

        assert (1, 1000.0 + MISS_SECONDS) == (attempts.misses, attempts.not_before)

    def test_a_hit_ends_the_pause(self) -> None:
        attempts = Attempts()
        attempts.missed(1000.0)
        attempts.hit()

        assert (0, 0.0) == (attempts.misses, attempts.not_before)


class TestShape:
    def test_pods_alike_share_one_whoever_owns_them(self) -> None:
        owned = [make_pod(f"{kind}-1", owner=controller(kind, "web")) for kind in ("ReplicaSet", "Job")]

        assert 1 == len({shape_of(pod, ["n1", "n2"]) for pod in (make_pod("bare"), make_pod("bare-2"), *owned)})

    def test_others_do_not(self) -> None:
        """Another namespace, another spec, or one node alone, as of a machine with a home."""
        spread = make_pod("spread", spread=[constraint(app="web")])
        found = [
            (make_pod("web"), ["n1", "n2"]),
            (make_pod("web", namespace="other"), ["n1", "n2"]),
            (spread, ["n1", "n2"]),
            (make_pod("web"), ["n1"]),
            (make_pod("web"), ["n2"]),
        ]

        assert len(found) == len({shape_of(*it) for it in found})


class TestExcluded:
    def test_a_node_is_excluded_until_it_or_its_pods_change(self) -> None:
        cluster = World(make_node("n1"), make_node("n2"), make_pod("full", node="n1")).cluster
        excluded = Excluded(cluster.node_stamp)

        def exclude() -> bool:
            excluded.add(SPEC, "n1", cluster.node_stamp("n1"))
            return excluded.has(SPEC, "n1")

        assert exclude()
        assert (False, False) == (excluded.has(SPEC, "n2"), excluded.has(make_pod("x", priority=7).spec, "n1"))
        cluster.upsert_node(make_node("n2", labels={"x": "y"}))
        assert excluded.has(SPEC, "n1")
        cluster.upsert_node(make_node("n1", resource_version="2"))  # a status of which the picture reads nothing
        assert not excluded.has(SPEC, "n1")
        assert exclude()
        cluster.delete_pod(("default", "full"))
        assert not excluded.has(SPEC, "n1")
        assert exclude()
        cluster.delete_node("n1")
        assert not excluded.has(SPEC, "n1")

    def test_a_change_during_the_question_voids_the_answer(self) -> None:
        cluster = World(make_node("n1"), make_pod("full", node="n1")).cluster
        excluded, asked_at = Excluded(cluster.node_stamp), cluster.node_stamp("n1")
        cluster.delete_pod(("default", "full"))
        excluded.add(SPEC, "n1", asked_at)

        assert not excluded.has(SPEC, "n1")

    def test_only_so_many_are_remembered(self) -> None:
        excluded = Excluded(lambda _: 0)
        for number in range((1 << 16) + 1):
            excluded.add(SPEC, f"n{number}", 0)

        assert (False, True) == (excluded.has(SPEC, "n0"), excluded.has(SPEC, "n65536"))


class TestPacing:
    def test_a_miss_holds_pods_of_its_shape_and_no_others(self) -> None:
        pacing = Pacing(lambda: 1000.0)
        one, other = shape_of(make_pod("one"), ["n1"]), shape_of(make_pod("other"), ["n2"])
        pacing.attempts(one).missed(1000.0)

        assert (MISS_SECONDS, True) == (pacing.held(one), pacing.held(other) <= 0.0)

    def test_the_process_nominates_ten_times_a_second(self) -> None:
        now = 1000.0
        pacing = Pacing(lambda: now)
        crowd = [pacing.until_nomination() for _ in range(11)]
        now += 2.0

        assert (0.0, 10 * NOMINATION_SECONDS) == (crowd[0], round(crowd[10], 6))
        assert 0.0 == pacing.until_nomination()

    def test_looks_come_one_after_another(self) -> None:
        pacing = Pacing(lambda: 1000.0)

        assert [0.0, LOOK_SECONDS, 2 * LOOK_SECONDS] == [round(pacing.until_look(), 6) for _ in range(3)]

    def test_only_so_many_shapes_are_remembered(self) -> None:
        pacing = Pacing(lambda: 1000.0)
        shapes = [shape_of(make_pod("p"), [f"n{number}"]) for number in range(4097)]
        for shape in shapes:
            pacing.attempts(shape).missed(1000.0)

        assert (True, False) == (pacing.held(shapes[-1]) > 0.0, pacing.held(shapes[0]) > 0.0)
