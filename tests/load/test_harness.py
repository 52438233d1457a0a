"""The lines with curl in docs/benchmarks.md count, and a bench that breaks a hard constraint says so."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.load.matrix import Cell, Selection, Store, StoredRun, break_even, lines, results
from tests.load.matrix_plot import draw
from tests.load.scheduling import Evenness, Run, broken, evenness
from tests.load.workload import load
from tests.served import served

ROOT: Final = Path(__file__).parents[2]
CURL: Final = re.findall(r"^curl .*$", (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_hard_constraints_are_broken_beyond_their_skew() -> None:
    hard, soft = load("scheduling")[2].constraints
    even = {hard.topology_key: Evenness(6, 0.0), soft.topology_key: Evenness(9, 0.1)}

    assert Evenness(4, 0.4) == evenness({"a": 5, "b": 2, "c": 1}, placed=5)
    assert [f"{hard.topology_key}: skew 6 over 5"] == broken((hard, soft), even)
    assert [] == broken((hard, soft), {**even, hard.topology_key: Evenness(5, 0.0)})


def stored(rate: float) -> StoredRun:
    return StoredRun(Run(rate, rate, 0, {}, {"etcd": 1.0}, ()), {}, {})


def test_the_matrix_makes_only_the_runs_that_its_file_lacks(tmp_path: Path) -> None:
    path, workload = str(tmp_path / "runs.json"), load("scheduling")[0]
    cell, selection = Cell(1_000, 30), Selection([Cell(1_000, 30)], [workload], ("in-tree", "homeport"), None, 0)
    store = Store(path)
    for system, rate in (("in-tree", 50), ("in-tree", 40), ("homeport", 100)):
        store.of(cell, workload.name, system).append(stored(rate))
    store.write()
    again = Store(path)

    assert ["homeport", "in-tree", "homeport"] == [system for _, system in selection.missing(cell, again)]
    assert [(45, None), (100, 2.0)] == [(it.pods_per_second, it.ratio) for it in results(again)]


@pytest.mark.parametrize(
    ("points", "expected"),
    [({0: 0.5, 10: 1.5}, "5"), ({0: 1.2}, "0"), ({10: 1.2, 30: 2}, "< 10"), ({0: 0.5, 30: 0.9}, "> 30")],
)
def test_the_fill_at_which_both_are_equally_fast(points: dict[int, float], expected: str) -> None:
    assert expected == break_even(points)


def test_the_plot_has_a_panel_for_each_size_and_a_line_for_each_system() -> None:
    store = Store("")
    for cell in (Cell(100, 0), Cell(100, 30), Cell(1_000, 0)):
        for system, rate in (("in-tree", 50), ("homeport", 40 + 10 * cell.fill), ("pick", 100)):
            store.of(cell, "zone<hard", system).append(stored(rate))

    root = ElementTree.fromstring(draw(lines(results(store))))

    texts = [it.text for it in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"100 nodes", "1,000 nodes", "zone<hard", "delegated", "complete with pick", "30"} <= set(texts)
    assert 4 == len([*root.iter("{http://www.w3.org/2000/svg}polyline")])


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int | None]:
    with served(tmp_path_factory.mktemp("served"), "--cluster", ROOT / "examples" / "sample-cluster.yaml") as http:
        yield http.base_url.port


def test_there_is_a_curl_line_for_every_verb() -> None:
    assert ["filter", "prioritize", "preempt", "bind"] == [re.findall(r":8888/(\w+)", line)[0] for line in CURL]


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=line.partition(":8888/")[2].partition("?")[0]) for line in CURL]
)
def test_the_curl_line_counts_its_calls(line: str, port: int) -> None:
    ours = line.replace(":8888/", f":{port}/").replace("[1-1000]", "[1-20]")

    done = subprocess.run(["bash", "-c", ours], cwd=ROOT, capture_output=True, text=True, check=True)

    calls, median, most = map(float, done.stdout.split())
    assert (20, True) == (calls, 0 < median <= most), done.stderr
