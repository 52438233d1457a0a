"""``homeport drain`` and POST /api/v1/drain, against a service and a saved cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from app.__main__ import main
from app.config.settings import Settings
from app.whatif.drain_models import DrainPlan
from tests.api.service import SAMPLE, Api, serving
from tests.api.village import DELEGATED, configured, profiles, saved
from tests.builders import JsonObject
from tests.served import served

PATH = "/api/v1/drain"
VILLAGE: JsonObject = {**DELEGATED, "schedulerName": "*"}

DRAINED = """\
n1: 3 of 5 pods would be placed, 2 would wait

NAMESPACE  POD              WAVE  HOME          THEN
default    db-0             1     n1 (hard)     waits for n1
default    db-2             1     n2 (hard)     waits for n2
machines   launcher-free01  1     none (grace)  starts on n4
machines   launcher-mail01  1     n1 (grace)    waits for n1; after its grace starts on n3
machines   launcher-db01    1     n1 (grace)    waits for n1; after its grace starts on n4
"""


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with serving(Settings(cluster=str(saved(tmp_path)), profiles=profiles(VILLAGE))) as api:
        yield api


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(
        tmp_path_factory.mktemp("village"), "--config", configured(tmp_path_factory.mktemp("config"), VILLAGE)
    ) as http:
        yield str(http.base_url)


async def planned(api: Api, *nodes: str) -> JsonObject:
    found: JsonObject = (await api.http.post(PATH, json={"nodes": nodes})).raise_for_status().json()
    assert DrainPlan.model_validate(found).model_dump(by_alias=True) == found
    return found


async def test_all_that_is_said_of_a_pod(api: Api) -> None:
    plan = await planned(api, "n1")

    (item,) = plan["items"]
    (mail,) = [it for it in item["pods"] if it["pod"] == "launcher-mail01"]
    (listed,) = (await api.http.get("/api/v1/homes", params={"name": "mail01"})).json()["items"]
    assert {
        "namespace": "machines",
        "pod": "launcher-mail01",
        "workload": "VirtualMachine/machines/mail01",
        "outcome": "placed",
        "then": "waits for n1; after its grace starts on n3",
        "wave": 1,
        "preempted": False,
        "waitedBefore": False,
        "nodeName": "n3",
        "ties": 0,
        "victims": [],
        "budgets": [],
        "home": listed,
        "waitsFor": "n1",
        "couldRunOn": None,
        "couldRunOnCount": 0,
        "placedLater": "",
    } == mail
    assert ([], "", True, False) == (plan["notJudged"], plan["stale"], plan["budgetsJudged"], plan["incomplete"])


async def test_without_complete_only_the_filters_of_the_profile_judge(tmp_path: Path) -> None:
    settings = Settings(cluster=str(saved(tmp_path)), profiles=profiles(VILLAGE), explain="profile")
    async with serving(settings) as api:
        plan = await planned(api, "n1")

    assert "NodeResourcesFit" in [it["plugin"] for it in plan["notJudged"]]
    assert plan["budgetsJudged"] is False


async def test_a_node_that_does_not_exist(api: Api) -> None:
    """Homes that are left on it are listed all the same."""
    (item,) = (await planned(api, "n9"))["items"]

    assert (False, [], ["lost01"]) == (item["known"], item["pods"], [it["owner"]["name"] for it in item["homes"]])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "Invalid JSON"),
        (b'{"nodes": []}', "at least 1 item"),
        (b'{"nodes": [""]}', "at least 1 character"),
        (b'{"nodes": ["n1"], "evict": true}', "Extra inputs are not permitted"),
        (b'{"nodes": ["' + b"x" * 254 + b'"]}', "at most 253 characters"),
        (json.dumps({"nodes": ["n1"] * 101}).encode(), "at most 100 items"),
    ],
)
async def test_bad_requests(api: Api, body: bytes, told: str) -> None:
    answer = await api.http.post(PATH, content=body)

    assert (422, True) == (answer.status_code, told in answer.text)


class TestCommand:
    def ran(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
        code = main([*words, "-q"])
        return code, *capsys.readouterr()

    def test_a_person_reads_who_goes_where_and_who_waits(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        """The exit code is 1, because pods would wait."""
        code, out, err = self.ran(capsys, "drain", "n1", "--dry-run", "--server", url)

        assert (1, DRAINED, "") == (code, out[: len(DRAINED)], err)

    @pytest.mark.parametrize("output", ["json", "yaml"])
    def test_a_program_reads_the_answer_of_the_page(
        self, url: str, capsys: pytest.CaptureFixture[str], output: str
    ) -> None:
        code, out, _ = self.ran(capsys, "drain", "n1", "n3", "--keep-cordoned", "-o", output, "--server", url)

        expected = httpx.post(url + PATH, json={"nodes": ["n1", "n3"], "keepCordoned": True}, timeout=20).json()
        assert (1, expected) == (code, json.loads(out) if output == "json" else yaml.safe_load(out))

    def test_a_node_that_does_not_exist_is_a_failure(self, capsys: pytest.CaptureFixture[str]) -> None:
        sample = ("--saved", str(SAMPLE))
        code, out, err = self.ran(capsys, "drain", "node-b2", "node-c33", "-o", "name", *sample)
        empty = self.ran(capsys, "drain", "", *sample)

        assert (3, True) == (code, err.startswith("homeport: there is no node 'node-c33'; did you mean node-c3"))
        assert ["pod/web-7d4b9c-r4x8m", "pod/virt-launcher-db01-x7k2p"] == out.splitlines()
        assert (2, "", "homeport: the name of the node is empty\n") == empty
