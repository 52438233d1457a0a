"""What the benchmarks themselves must get right; what they measure is not asked here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.controlplane.processes import ProcessGroup, free_port
from tests.load import cluster
from tests.load.__main__ import PARTS
from tests.load.bench import Connection, answers
from tests.load.counting import CountingProxy
from tests.load.hop import compared as hop
from tests.load.quiet import Probe
from tests.load.scheduling import Evenness, Run, broken, compared, evenness, existing, node_name, zone_of
from tests.load.service import Sizes, _feasible_zones
from tests.load.shop import Shop, pod
from tests.load.usage import waits
from tests.load.workload import Case, chosen, load

ROOT: Final = Path(__file__).parents[2]
CURL: Final = re.findall(r"^curl .*$", (ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), re.MULTILINE)
BIND: Final = (ROOT / "examples" / "requests" / "bind-crowded.json").read_bytes()
FILTER: Final = (ROOT / "examples" / "requests" / "filter-spread.json").read_bytes()


def case(target: float | None = None) -> Case:
    (found,) = chosen(load("scheduling"), matching="zone-hard/1000-nodes", scale=0.02 if target is None else 1)
    return found


class TestWorkloads:
    def test_every_size_starts_even_over_zones_and_hosts(self) -> None:
        sizes = [size for workload in load("scheduling") for size in workload.sizes]

        assert {0} == {size.nodes % 4 for size in sizes} | {size.existing % size.nodes for size in sizes}

    def test_cases_of_one_cluster_stand_in_a_row(self) -> None:
        environments = [found.environment() for found in chosen(load("scheduling"))]

        changes = sum(one != other for one, other in pairwise(environments))
        assert changes + 1 == len(set(environments))

    @pytest.mark.parametrize(
        ("matching", "sizes"),
        [
            ("zone-hard/1000-nodes,zone-soft/1000-nodes", ["1000-nodes"] * 2),
            ("zone-soft/5000-nodes$", ["5000-nodes"]),
            ("/5000-nodes$", ["5000-nodes"] * 4),
        ],
    )
    def test_cases_are_chosen_by_a_part_of_their_names_or_its_end(self, matching: str, sizes: list[str]) -> None:
        assert sizes == [it.size.name for it in chosen(load("scheduling"), matching=matching)]

    def test_a_smaller_size_is_even_too_and_has_no_target(self) -> None:
        small = [found.size for found in chosen(load("scheduling"), scale=0.013)]

        assert {(0, 0, None)} == {(it.nodes % 4, it.existing % it.nodes, it.target) for it in small}

    def test_existing_pods_stand_round_the_nodes(self) -> None:
        names = [made["spec"]["nodeName"] for made in existing(8, among=4)]

        assert [node_name(number) for number in (0, 1, 2, 3)] * 2 == names
        assert 4 == len({zone_of(name) for name in names})


class TestScheduling:
    def test_the_ratio_is_the_median_of_those_within_a_round(self) -> None:
        runs = {name: [run(it) for it in rates] for name, rates in RATES.items()}

        found = compared(case(0.6), runs, {})

        assert ([0.5, 3.0, 2.0], 2.0, 0.6) == (found["ratios"], found["ratio"], found["target"])

    def test_pods_left_over_and_sent_back_are_added_up(self) -> None:
        found = compared(case(), {name: [run(1.0), run(1.0)] for name in RATES}, {})

        ours = found["systems"]["homeport"]
        assert (2, {"error": 2, "scheduled": 20}) == (ours["unplaced"], ours["attempts"])

    def test_each_system_has_a_ratio_of_its_own(self) -> None:
        runs = {name: [run(it) for it in rates] for name, rates in {**RATES, "pick": [300.0, 20.0, 80.0]}.items()}

        found = compared(case(), runs, {})["systems"]

        assert {"in-tree": None, "homeport": 2.0, "pick": 2.0} == {name: it["ratio"] for name, it in found.items()}
        assert [3.0, 2.0, 2.0] == found["pick"]["ratios"]

    @pytest.mark.parametrize(
        ("counts", "expected"),
        [
            pytest.param([2, 2, 2], Evenness(0, 0.0), id="even"),
            pytest.param([3, 2, 2], Evenness(1, 0.0), id="as even as can be"),
            pytest.param([5, 2, 1], Evenness(4, 0.4), id="two of five above the share"),
        ],
    )
    def test_what_stands_above_the_even_share_is_told(self, counts: list[int], expected: Evenness) -> None:
        assert expected == evenness(dict(zip("abc", counts, strict=True)), placed=5)

    def test_hard_constraints_are_broken_beyond_their_skew(self) -> None:
        hard, soft = load("scheduling")[2].constraints
        even = {hard.topology_key: Evenness(6, 0.0), soft.topology_key: Evenness(9, 0.1)}

        assert [f"{hard.topology_key}: skew 6 over 5"] == broken((hard, soft), even)
        assert [] == broken((hard, soft), {**even, hard.topology_key: Evenness(5, 0.0)})


RATES: Final = {"in-tree": [100.0, 10.0, 40.0], "homeport": [50.0, 30.0, 80.0]}


def run(rate: float) -> Run:
    return Run(
        rate,
        rate,
        1,
        {"scheduled": 10, "error": 1},
        {"etcd": None, "extender": 1.0},
        {"etcd": None, "extender": 9.0},
        [],
    )


def test_waits_are_those_of_all_threads() -> None:
    slept, over = threading.Event(), threading.Event()

    def sleeper() -> None:
        for _ in range(50):
            time.sleep(0.001)
        slept.set()
        over.wait()

    before = waits(os.getpid())
    thread = threading.Thread(target=sleeper, daemon=True)
    thread.start()
    slept.wait()  # once, for the thread of this test

    assert waits(os.getpid()) - before >= 50
    over.set()


def test_a_probe_tells_of_each_look_at_the_machine() -> None:
    probe = Probe()
    samples = [probe.take() for _ in range(3)]

    found = probe.as_json()

    walks = sorted(it.walk for it in samples)
    assert [walks[0], walks[1], walks[2]] == found["walk ns"]
    assert all(it.add > 0 and 0 <= it.stolen <= 1 for it in samples)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port, group = free_port(), ProcessGroup(tmp_path_factory.mktemp("served"))
    saved = ROOT / "examples" / "sample-cluster.yaml"
    try:
        command = [sys.executable, "-m", "homeport", "serve", f"--cluster={saved}", f"--port={port}"]
        group.start("homeport", command).wait_ready(lambda: answers(port, "/readyz"), 60)
        yield port
    finally:
        group.close()


def test_there_is_a_curl_line_for_every_verb() -> None:
    assert ["filter", "prioritize", "preempt", "bind"] == [re.findall(r":8888/(\w+)", line)[0] for line in CURL]


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=line.partition(":8888/")[2].partition("?")[0]) for line in CURL]
)
def test_the_curl_line_counts_its_calls(line: str, served: int) -> None:
    ours = line.replace(":8888/", f":{served}/").replace("[1-1000]", "[1-20]")

    done = subprocess.run(["bash", "-c", ours], cwd=ROOT, capture_output=True, text=True, check=True)

    calls, median, most = map(float, done.stdout.split())
    assert (20, True) == (calls, 0 < median <= most), done.stderr


def test_the_proxy_counts_names_and_answers_as_homeport_does(served: int) -> None:
    with CountingProxy(served) as proxy:
        through = httpx.post(f"{proxy.url}/filter", content=FILTER, trust_env=False)
        counted = proxy.per_call()["filter"]

    direct = httpx.post(f"http://127.0.0.1:{served}/filter", content=FILTER, trust_env=False)
    assert direct.json() == through.json()
    assert (1, 12, 4) == (counted["calls"], counted["names asked"], counted["names passed"])


def test_the_hop_is_compared_on_any_two_that_run(served: int) -> None:
    with Connection(served) as direct, Connection(served) as forwarded:
        found = hop(direct, forwarded, "/bind", BIND, calls=5)

    assert {"direct", "forwarded", "hop_us", "ratio"} == found.keys()


def test_the_zones_that_start_waits_for_are_those_that_filter_gives() -> None:
    sizes = Sizes(nodes=30, many_nodes=30, pods=4000, calls=1, seconds=1, binds=1)
    shop = Shop(sizes.nodes, sizes.pods)

    passed = shop.filter(pod(cluster.pending_pod(7)), shop.names())

    assert passed == 10 * len(_feasible_zones(7, sizes))


def test_every_part_of_the_bench_is_a_module() -> None:
    folder = Path(__file__).parent

    assert [] == [part.module for part in PARTS.values() if not (folder / f"{part.module}.py").is_file()]
