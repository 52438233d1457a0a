"""When a node may be tried, and when the next look may be."""

from __future__ import annotations

from app.controllers.pacing import (
    LOOK_SECONDS,
    MOST_MISSES,
    REPEAT_SECONDS,
    REST_SECONDS,
    Attempts,
    Pacing,
    workload_of,
)
from tests.builders import controller, make_pod


class TestAttempts:
    def test_the_back_off_doubles_and_ends_in_a_rest(self) -> None:
        attempts, now, pauses = Attempts(), 1000.0, []
        for _ in range(MOST_MISSES + 1):
            attempts.missed("n1", now, in_tree=True)
            pauses.append(attempts.not_before - now)
            now = attempts.not_before

        assert [0.25, 0.5, 1.0, 2.0, 4.0, REST_SECONDS, 0.25] == pauses

    def test_a_node_is_out_for_longer_each_time_it_is_rejected(self) -> None:
        attempts, now, pauses = Attempts(), 1000.0, []
        for _ in range(7):
            attempts.missed("n1", now, in_tree=True)
            until = attempts.rejected_at(now)["n1"]
            pauses.append(until - now)
            assert {} == attempts.rejected_at(until)
            now = until

        assert [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0] == pauses

    def test_what_replicas_miss_at_the_same_time_is_one_miss(self) -> None:
        attempts = Attempts()
        for node in ("n1", "n2", "n3"):
            attempts.missed(node, 1000.0, in_tree=True)

        assert (1, 1000.25, {"n1", "n2", "n3"}) == (
            attempts.misses,
            attempts.not_before,
            set(attempts.rejected_at(1000.0)),
        )

    def test_a_hit_ends_the_back_off_and_opens_the_node(self) -> None:
        attempts = Attempts()
        attempts.missed("n1", 1000.0, in_tree=True)
        attempts.missed("n2", 1001.0, in_tree=True)
        attempts.hit("n1")

        assert (0, 0.0, {"n2": 1011.0}) == (attempts.misses, attempts.not_before, attempts.rejected_at(1001.0))

    def test_what_was_rejected_long_ago_is_forgotten(self) -> None:
        attempts = Attempts()
        attempts.missed("n1", 1000.0, in_tree=True)
        attempts.hit("n2")
        attempts.forget(1309.0)
        before = attempts.repeats
        attempts.forget(1310.0)

        assert (True, False) == (before, attempts.repeats)

    def test_a_miss_that_is_no_fault_of_the_node_leaves_it_open(self) -> None:
        attempts = Attempts()
        attempts.missed("n1", 1000.0, in_tree=False)

        assert ({}, 1000.25, True) == (attempts.rejected_at(1000.0), attempts.not_before, attempts.repeats)

    def test_only_so_many_nodes_are_remembered(self) -> None:
        attempts = Attempts()
        for number in range(65):
            attempts.missed(f"n{number}", 1000.0, in_tree=True)

        assert [f"n{number}" for number in range(1, 65)] == list(attempts.rejected_at(1000.0))


def test_replicas_share_their_attempts() -> None:
    web = [make_pod(f"web-{number}", owner=controller("ReplicaSet", "web")) for number in (1, 2)]

    assert ("uid-web", "uid-web", "uid-default-alone") == (*map(workload_of, web), workload_of(make_pod("alone")))


def test_a_uid_that_is_none_is_not_remembered() -> None:
    owner = controller("ReplicaSet", "web" * 100)

    assert "uid-default-web" == workload_of(make_pod("web", owner=owner))


class TestPacing:
    def test_a_first_attempt_waits_for_nobody(self) -> None:
        pacing = Pacing(lambda: 1000.0)
        one, other = make_pod("one"), make_pod("other")
        pacing.begin(one).missed("n1", 1000.0, in_tree=True)

        assert (0.25, True) == (pacing.held(one), pacing.held(other) <= 0.0)

    def test_repeats_wait_for_one_another(self) -> None:
        now = 1000.0
        pacing = Pacing(lambda: now)
        pods = [make_pod(name) for name in ("one", "other")]
        for pod in pods:
            pacing.begin(pod).missed("n1", now, in_tree=True)
        now += 0.25
        before = [pacing.held(pod) for pod in pods]
        pacing.begin(pods[0])

        assert ([0.0, 0.0], [REPEAT_SECONDS] * 2) == (before, [pacing.held(pod) for pod in pods])

    def test_looks_come_one_after_another(self) -> None:
        now = 1000.0
        pacing = Pacing(lambda: now)
        crowd = [pacing.until_look() for _ in range(3)]
        now += 1.0

        assert [0.0, LOOK_SECONDS, 2 * LOOK_SECONDS] == [round(it, 6) for it in crowd]
        assert 0.0 == pacing.until_look()

    def test_only_so_many_workloads_are_remembered(self) -> None:
        pacing = Pacing(lambda: 1000.0)
        for number in range(4097):
            pacing.begin(make_pod(f"p{number}")).missed("n1", 1000.0, in_tree=True)

        assert (4096, True) == (len(pacing._workloads), pacing.held(make_pod("p4096")) > 0.0)
        assert pacing.held(make_pod("p0")) <= 0.0
