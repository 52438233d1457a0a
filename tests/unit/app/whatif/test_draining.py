"""What a drain would do: room adds up, budgets say in which order, and policies of homes say where and when."""

from __future__ import annotations

import pytest

from app.kube.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, POD_DISRUPTION_BUDGETS
from tests.api.village import machine, owner
from tests.builders import JsonObject, PodFields, constraint, controller
from tests.unit.app.whatif.drains import HOMES, becomes, budget, drain, home, node, planned, pod
from tests.unit.app.whatif.scratches import COMPLETE, scratch_of

WEB = {"app": "web"}
HOST = "kubernetes.io/hostname"
SHARING = {"owners": [{"apiVersion": "example.com/v1", "kind": "Database"}], "policy": "hard"}


class TestRoom:
    def test_what_they_need_adds_up(self) -> None:
        """Each alone would find a place on n2; together the third does not."""
        item = drain(node("n1", "64"), node("n2", "8"), node("n3", "2"), *(pod(f"web-{it}") for it in range(3)))

        assert {
            "web-0": "starts on n2",
            "web-1": "starts on n2",
            "web-2": "waits: 2 of 2: NodeResourcesFit: Insufficient cpu",
        } == becomes(item)
        assert [(1, ["web-2"], True)] == [(it["count"], it["pods"], it["fitsAlone"]) for it in item["waitingGroups"]]

    def test_who_fits_nowhere_would_not_alone_either(self) -> None:
        item = drain(node("n1", "64"), node("n2", "8"), pod("web"), pod("huge", "16"))

        assert [False] == [it["fitsAlone"] for it in item["waitingGroups"]]

    def test_a_hard_spread_counts_who_was_placed_before(self) -> None:
        """And not where they are now: n1 is empty by then, and still a domain."""
        spread: PodFields = {"labels": WEB, "spread": [constraint(HOST, app="web")]}
        item = drain(*(node(it, "64") for it in ("n1", "n2", "n3")), *(pod(f"web-{it}", **spread) for it in range(3)))

        assert (2, 1) == (item["placed"], item["waiting"])
        (change,) = item["spread"]
        assert ({"n1": 3, "n2": 0, "n3": 0}, {"n1": 0, "n2": 1, "n3": 1}) == (change["before"], change["after"])

    def test_no_pod_is_placed_on_the_node_even_if_it_tolerates_the_cordon(self) -> None:
        item = drain(node("n1", "64"), pod("web", tolerations=[{"operator": "Exists"}]))

        assert {"web": "waits: there is no other node"} == becomes(item)

    def test_higher_priority_first_then_the_older(self) -> None:
        item = drain(
            node("n1", "64"),
            node("n2", "8"),
            pod("low", created="2026-01-01T00:00:00Z"),
            pod("young", priority=5, created="2026-01-03T00:00:00Z"),
            pod("old", priority=5, created="2026-01-02T00:00:00Z"),
        )

        assert {"low": "waiting", "old": "placed", "young": "placed"} == {
            it["pod"]: it["outcome"] for it in item["pods"]
        }

    def test_pods_that_a_drain_leaves_alone(self) -> None:
        """One without a controller goes, and does not come back."""
        lone = pod("lone")
        del lone["metadata"]["ownerReferences"]
        item = drain(
            node("n1", "64"),
            node("n2", "64"),
            lone,
            pod("web"),
            pod("agent", owner=controller("DaemonSet", "agent")),
            pod("mirror", owner=controller("Node", "n1", api_version="v1")),
            pod("going", terminating=True),
        )

        assert {"lone": "is lost: no controller creates it again", "web": "starts on n2"} == becomes(item)
        assert {"agent": "DaemonSet", "mirror": "static pod", "going": "ends already"} == {
            it["pod"]: it["why"] for it in item["apart"]
        }

    def test_a_pod_of_higher_priority_evicts_another(self) -> None:
        item = drain(node("n1", "64"), node("n2", "4"), pod("high", priority=9), pod("low", node="n2"))

        assert ("starts on n2", ["default/low"]) == (becomes(item)["high"], item["pods"][0]["victims"])
        assert (1, 1, True) == (item["evicted"], item["preempted"], item["pods"][1]["preempted"])
        assert becomes(item)["low"].startswith("waits: 1 of 1: NodeResourcesFit")

    def test_a_fault_concerns_one_pod(self) -> None:
        odd = pod("odd", priority=9, more={"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "odd"}}]})
        scratch = scratch_of(node("n1", "64"), node("n2", "64"), pod("web"), odd)
        scratch.cluster.mark_unreadable(PERSISTENT_VOLUME_CLAIMS, ("default", "odd"), "too large")

        (item,) = planned(scratch)["items"]

        assert ("starts on n2", 1, 1) == (becomes(item)["web"], item["placed"], item["notJudged"])
        assert "default/odd cannot be read" in becomes(item)["odd"]

    def test_nobody_is_judged_once_the_time_is_over(self) -> None:
        (item,) = planned(scratch_of(node("n1"), node("n2"), pod("a", "1"), pod("b", "1")), seconds=-1)["items"]

        assert (1, 1) == (item["placed"] + item["waiting"], item["notReached"])

    def test_a_node_that_cannot_be_read_gets_no_pod(self) -> None:
        """Nor does a pod wait for a soft home there."""
        scratch = scratch_of(
            node("n1", "64"), node("n2", "64"), node("n3", "64"), *home("db", "n3", "soft"), profile=HOMES
        )
        scratch.cluster.mark_unreadable(NODES, ("", "n3"), "too large")

        (item,) = planned(scratch)["items"]

        assert {"launcher-db": "starts on n2"} == becomes(item)


class TestBudgets:
    def test_a_budget_that_cannot_be_read_blocks_only_the_pods_of_its_namespace(self) -> None:
        other = pod("other", labels=WEB, namespace="other")
        scratch = scratch_of(node("n1", "64"), node("n2", "64"), pod("web", labels=WEB), other)
        scratch.cluster.mark_unreadable(POD_DISRUPTION_BUDGETS, ("default", "odd"), "too large")

        (item,) = planned(scratch)["items"]

        told = "is not evicted: PodDisruptionBudget default/odd cannot be read: too large, and might guard it"
        assert {"web": told, "other": "starts on n2"} == becomes(item)
        assert (1, 1) == (item["blocked"], item["placed"])

    def test_a_pod_is_not_blocked_if_only_the_time_is_over(self) -> None:
        pods = [pod(f"web-{it}", "1", labels=WEB) for it in range(2)]
        scratch = scratch_of(node("n1"), node("n2"), *pods, budget(allowed=1, healthy=3, desired=2))

        (item,) = planned(scratch, seconds=-1)["items"]

        assert ["placed", "notReached"] == [it["outcome"] for it in item["pods"]]

    def test_evictions_go_in_waves_as_new_pods_are_placed(self) -> None:
        pods = [pod(f"web-{it}", labels=WEB) for it in range(3)]
        item = drain(node("n1", "64"), node("n2", "64"), *pods, budget(allowed=1, healthy=4, desired=3))

        assert [1, 2, 3] == [it["wave"] for it in item["pods"]]
        assert [{
            "namespace": "default", "name": "web", "disruptionsAllowed": 1, "currentHealthy": 4, "desiredHealthy": 3,
            "pods": 3, "waves": [1, 2, 3], "blocked": 0,
        }] == item["budgets"]  # fmt: skip

    def test_a_budget_blocks_while_a_new_pod_waits(self) -> None:
        pods = [pod(f"web-{it}", labels=WEB) for it in range(3)]
        item = drain(node("n1", "64"), node("n2", "4"), *pods, budget(allowed=1, healthy=4, desired=3))

        assert {"web-0": "placed", "web-1": "waiting", "web-2": "blocked"} == {
            it["pod"]: it["outcome"] for it in item["pods"]
        }
        assert "is not evicted: budget default/web needs 3 healthy pods and has 3" == becomes(item)["web-2"]

    @pytest.mark.parametrize(
        ("budgets", "status", "blocks"),
        [
            pytest.param([budget(healthy=3, desired=3)], True, True, id="it allows none"),
            pytest.param([budget(allowed=1, healthy=4, desired=3)], True, False, id="it allows one"),
            pytest.param([budget(healthy=2, desired=3)], False, True, id="unready, and too few are healthy"),
            pytest.param([budget(healthy=3, desired=3)], False, False, id="unready, and enough are healthy"),
            pytest.param([budget(healthy=0, desired=0)], False, True, id="unready, and no number is desired"),
            pytest.param(
                [budget(healthy=2, desired=3, unhealthyPodEvictionPolicy="AlwaysAllow")],
                False,
                False,
                id="unready pods are always allowed",
            ),
            pytest.param([budget("a", 5, 9, 4), budget("b", 5, 9, 4)], True, True, id="two budgets"),
            pytest.param([budget(selector={})], True, True, id="an empty selector guards every pod"),
            pytest.param([budget(selector={"matchLabels": {"app": "db"}})], True, False, id="of other pods"),
        ],
    )
    def test_as_the_eviction_api_does(self, budgets: list[dict[str, object]], status: bool, blocks: bool) -> None:
        conditions = {"conditions": [{"type": "Ready", "status": str(status)}]}
        item = drain(node("n1", "64"), node("n2", "64"), pod("web", labels=WEB, status=conditions), *budgets)

        assert (int(blocks), int(not blocks)) == (item["blocked"], item["placed"])

    @pytest.mark.parametrize("is_ready", [True, False])
    def test_a_budget_that_is_not_processed_yet_allows_no_ready_pod(self, is_ready: bool) -> None:
        conditions = {"conditions": [{"type": "Ready", "status": str(is_ready)}]}
        changed = budget(allowed=1, healthy=4, desired=3)
        changed["metadata"]["generation"], changed["status"]["observedGeneration"] = 3, 2

        item = drain(node("n1", "64"), node("n2", "64"), pod("web", labels=WEB, status=conditions), changed)

        refused = "is not evicted: budget default/web is not processed yet"
        assert {"web": refused if is_ready else "starts on n2"} == becomes(item)

    def test_a_pod_whose_containers_do_not_run_yet_needs_no_budget(self) -> None:
        starting = pod("web", labels=WEB, phase="Pending", status={})
        item = drain(node("n1", "64"), node("n2", "64"), starting, budget())

        assert {"web": "starts on n2"} == becomes(item)

    def test_a_new_pod_of_an_unready_one_does_not_count_as_ready(self) -> None:
        """It could fail like the one before."""
        unready = pod("bad", labels=WEB, status={})
        item = drain(node("n1", "64"), node("n2", "64"), unready, pod("good", labels=WEB), budget(healthy=3, desired=3))

        assert {"bad": "placed", "good": "blocked"} == {it["pod"]: it["outcome"] for it in item["pods"]}


class TestHomes:
    @pytest.mark.parametrize(
        ("policy", "then", "waits_for"),
        [
            ("hard", "waits for n1", "n1"),
            ("grace", "waits for n1; after its grace starts on n2", "n1"),
            ("soft", "starts on n2", ""),
            ("off", "starts on n2", ""),
        ],
    )
    def test_the_policy_says_when_it_starts(self, policy: str, then: str, waits_for: str) -> None:
        item = drain(node("n1", "64"), node("n2", "64"), *home("db", policy=policy))

        assert {"launcher-db": then} == becomes(item)
        (found,) = item["pods"]
        assert (waits_for, "db") == (found["waitsFor"], found["home"]["owner"]["name"])
        assert (["n2"] if policy == "hard" else None) == found["couldRunOn"], "what a release would open"
        assert (policy == "hard") == bool(item["waitingGroups"])

    def test_guests_go_home_as_far_as_there_is_room(self) -> None:
        """A hard one waits for its home then, one with a grace goes elsewhere after it, a soft one at once."""
        first = home("first", "home", created="2026-01-01T00:00:00Z")
        others = [it for policy in ("hard", "grace", "soft") for it in home(policy, "home", policy)]
        item = drain(node("n1", "64"), node("home", "4"), node("n3", "64"), *first, *others)

        full = "NodeResourcesFit: Insufficient cpu"
        found = becomes(item)
        assert found.pop("launcher-hard").startswith("waits for home, which does not take it: ")
        assert {
            "launcher-first": "goes home to home",
            "launcher-soft": "starts on n3",
            "launcher-grace": "waits for home; after its grace starts on n3",
        } == found, full

    def test_a_soft_guest_tries_its_home_first(self) -> None:
        item = drain(node("n1", "64"), node("n2", "64"), node("small", "4"), *home("db", "small", "soft"))

        assert {"launcher-db": "goes home to small"} == becomes(item)

    def test_pods_that_wait_for_a_grace_come_after_all_that_go_at_once(self) -> None:
        later = home("later", policy="grace", priority=0, created="2025-01-01T00:00:00Z")
        item = drain(node("n1", "64"), node("n2", "8"), *later, pod("now-1"), pod("now-2"))

        assert {"now-1": "starts on n2", "now-2": "starts on n2"} == {
            name: then for name, then in becomes(item).items() if name != "launcher-later"
        }
        assert becomes(item)["launcher-later"].startswith("waits for n1, and after its grace: ")

    def test_a_pod_that_waits_for_good_takes_no_room(self) -> None:
        held, later = home("held"), home("later", policy="grace")
        item = drain(node("n1", "64"), node("n2", "4"), *held, *later)

        assert {
            "launcher-held": "waits for n1",
            "launcher-later": "waits for n1; after its grace starts on n2",
        } == becomes(item)

    def test_a_pod_that_waits_for_its_home_there_already(self) -> None:
        waiting = home("db", policy="grace", node="", status={})
        item = drain(node("n1", "64"), node("n2", "4"), *waiting)

        assert ({"launcher-db": "waits for n1; after its grace starts on n2"}, 1) == (
            becomes(item),
            item["waitedBefore"],
        )

    def test_homes_whose_pod_is_not_there(self) -> None:
        idle = {it: machine(it, "n1") for it in ("hard", "grace", "soft")}
        for policy, (virtual,) in idle.items():
            virtual["metadata"]["annotations"]["homeport.dev/policy"] = policy
        item = drain(
            node("n1"), node("n2", "64"), *home("away", node="n2"), *(it for (it,) in idle.values()),
            *machine("elsewhere", "n2"),
        )  # fmt: skip

        assert {
            "away": "stays on n2",
            "hard": "waits for n1",
            "grace": "waits for n1; elsewhere after its grace",
            "soft": "starts elsewhere",
        } == {it["owner"]["name"]: it["then"] for it in item["homes"]}

    def test_a_node_that_is_gone_can_be_a_home(self) -> None:
        scratch = scratch_of(node("n2"), *home("db", node="", status={}), profile=HOMES)
        (item,) = planned(scratch)["items"]

        assert (False, [], ["waits for n1"]) == (item["known"], item["pods"], [it["then"] for it in item["homes"]])


class TestSharedHomes:
    """A list of homes has such a home once, with one pod. The home of each pod counts."""

    def drained(self, at: str, *pods: JsonObject) -> JsonObject:
        profile = {**COMPLETE, "pluginConfig": [{"name": "StickyNode", "args": SHARING}]}
        database = owner("Database", "db", "example.com/v1", home=at)
        scratch = scratch_of(*(node(it, "64") for it in ("n1", "n2")), database, *pods, profile=profile)
        (item,) = planned(scratch)["items"]
        return item  # type: ignore[no-any-return]  # the answer is JSON

    def member(self, name: str, on: str = "n1") -> JsonObject:
        by = {**controller("Database", "db", api_version="example.com/v1"), "uid": "uid-Database-db"}
        return pod(name, node=on, owner=by)

    def test_each_pod_of_the_node_waits_for_the_home(self) -> None:
        item = self.drained("n1", *(self.member(f"db-{number}") for number in range(3)))

        assert dict.fromkeys(("db-0", "db-1", "db-2"), "waits for n1") == becomes(item)
        assert [] == item["homes"]

    def test_one_beside_its_home_goes_there(self) -> None:
        item = self.drained("n2", self.member("db-0", on="n2"), self.member("db-1"))

        assert ({"db-1": "goes home to n2"}, []) == (becomes(item), item["homes"])


def test_the_target_of_a_migration_is_free_beside_its_source() -> None:
    virtual, instance, source = home("db")
    labels = {"kubevirt.io/migrationJobUID": "job"}
    target = {**source, "metadata": {**source["metadata"], "name": "target", "uid": "uid-target", "labels": labels}}
    item = drain(node("n1", "64"), node("n2", "64"), virtual, instance, source, target)

    assert {"launcher-db": "waits for n1", "target": "starts on n2"} == becomes(item)


class TestSeveralNodes:
    def test_a_node_is_free_again_before_the_next(self) -> None:
        nodes = [node("n1"), node("n2")]
        plan = planned(scratch_of(*nodes, pod("a"), pod("b", node="n2")), "n1", "n2")

        first, second = plan["items"]
        assert ("waiting", "n1", ["waits: 1 of 1: NodeResourcesFit: Insufficient cpu"]) == (
            first["pods"][0]["outcome"],
            first["pods"][0]["placedLater"],
            [*becomes(first).values()],
        )
        assert {"b": "waits: 1 of 1: NodeResourcesFit: Insufficient cpu"} == becomes(second)

    def test_nodes_can_stay_cordoned(self) -> None:
        scratch = scratch_of(*(node(it) for it in ("n1", "n2", "n3")), pod("a"), pod("b", node="n2"))

        plan = planned(scratch, "n1", "n2", keep=True)

        assert [{"a": "starts on n3"}, {"b": "waits: 1 of 1: NodeResourcesFit: Insufficient cpu"}] == [
            becomes(it) for it in plan["items"]
        ]

    def test_a_pod_can_move_twice_and_keeps_its_name(self) -> None:
        scratch = scratch_of(node("n1"), node("n2"), pod("a"))

        plan = planned(scratch, "n1", "n2")

        assert [{"a": "starts on n2"}, {"a": "starts on n1"}] == [becomes(it) for it in plan["items"]]

    def test_a_held_pod_is_back_before_the_next_node(self) -> None:
        scratch = scratch_of(node("n1"), node("n2"), *home("db"), profile=HOMES)

        first, second = planned(scratch, "n1", "n2")["items"]

        assert ("waits for n1", "n1", []) == (
            first["pods"][0]["then"],
            first["pods"][0]["placedLater"],
            second["pods"],
        )
