"""The lines with curl in docs/performance.md count, and a bench that breaks a hard constraint says so."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.load.scheduling import Evenness, broken, evenness
from tests.load.workload import load
from tests.served import served

ROOT: Final = Path(__file__).parents[2]
CURL: Final = re.findall(r"^curl .*$", (ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_hard_constraints_are_broken_beyond_their_skew() -> None:
    hard, soft = load("scheduling")[2].constraints
    even = {hard.topology_key: Evenness(6, 0.0), soft.topology_key: Evenness(9, 0.1)}

    assert Evenness(4, 0.4) == evenness({"a": 5, "b": 2, "c": 1}, placed=5)
    assert [f"{hard.topology_key}: skew 6 over 5"] == broken((hard, soft), even)
    assert [] == broken((hard, soft), {**even, hard.topology_key: Evenness(5, 0.0)})


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
