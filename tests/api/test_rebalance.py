"""``homeport rebalance`` and POST /api/v1/rebalance, on the sample cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.__main__ import main
from app.config.settings import Settings
from app.whatif.rebalance_models import RebalancePlan
from tests.api.service import ROOT, SAMPLE, Api, serving
from tests.builders import JsonObject
from tests.unit.app.whatif.rebalances import nodes, pod

PATH = "/api/v1/rebalance"
WEB = {"namespace": "shop", "kind": "Deployment", "name": "web"}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving(Settings(cluster=str(SAMPLE), explain="complete")) as api:
        yield api


async def planned(api: Api, body: JsonObject) -> JsonObject:
    found: JsonObject = (await api.http.post(PATH, json=body)).raise_for_status().json()
    assert RebalancePlan.model_validate(found).model_dump(by_alias=True) == found
    return found


async def test_all_that_is_said_of_an_eviction(api: Api) -> None:
    plan = await planned(api, WEB)

    assert [
        {
            "namespace": "shop",
            "pod": "web-7d4b9c-k0x8m",
            "uid": "eff507f3-8cd3-5c96-a208-373e7cb89c6d",
            "workload": "Deployment/shop/web",
            "nodeName": "node-a1",
            "goesTo": "node-c4",
            "ties": 0,
            "improves": [
                {
                    "workload": "Deployment/shop/web",
                    "topologyKey": "topology.kubernetes.io/zone",
                    "leaves": "eu-1a",
                    "enters": "eu-1c",
                    "skewBefore": 2,
                    "skewAfter": 0,
                }
            ],
        }
    ] == plan["evictions"]
    assert (1, [], True, False) == (plan["above"], plan["left"], plan["known"], plan["incomplete"])
    assert plan == await planned(api, {})


async def test_names_that_do_not_exist(api: Api) -> None:
    plan = await planned(api, {"namespace": "shopp"})

    assert (False, True, []) == (plan["known"], "shop" in plan["suggestion"], plan["evictions"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "Invalid JSON"),
        (b'{"most": 0}', "greater than or equal to 1"),
        (b'{"most": "3"}', "valid integer"),
        (b'{"evict": true}', "Extra inputs are not permitted"),
        (b'{"namespace": "shop", "kind": "Deployment"}', "one workload needs kind, name and namespace"),
        (b'{"kind": "Deployment", "name": "web"}', "one workload needs kind, name and namespace"),
    ],
)
async def test_bad_requests(api: Api, body: bytes, told: str) -> None:
    answer = await api.http.post(PATH, content=body)

    assert (422, True) == (answer.status_code, told in answer.text)


class TestCommand:
    def ran(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
        code = main(["rebalance", *words, "-q", "--saved", str(SAMPLE)])
        return code, *capsys.readouterr()

    def test_a_person_reads_what_the_docs_show(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = self.ran(capsys, "deploy/web", "-n", "shop")

        assert (0, "") == (code, err)
        assert f"$ homeport rebalance deploy/web -n shop\n{out}```" in (ROOT / "docs" / "what-if.md").read_text()

    def test_a_program_reads_the_answer(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = self.ran(capsys, "-A", "--most", "1", "-o", "json")

        assert (0, ["node-c4"]) == (code, [it["goesTo"] for it in json.loads(out)["evictions"]])

    def test_what_stays_above_makes_the_exit_code_1(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        pods = [pod(f"web-{it}", "n1", annotations={"homeport.dev/never-evict": "true"}) for it in range(3)]
        saved = tmp_path / "cluster.json"
        saved.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes("a", "b"), *pods]}))

        code = main(["rebalance", "-n", "default", "-q", "--saved", str(saved)])

        assert (1, True) == (code, "#   3 pods: the annotation homeport.dev/never-evict" in capsys.readouterr().out)

    def test_failures(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert (3, "", "homeport: there is no workload 'deploy/web' with pods in namespace 'machines'\n") == self.ran(
            capsys, "deploy/web", "-n", "machines"
        )
        assert 3 == self.ran(capsys, "-n", "shopp")[0]
        assert 2 == self.ran(capsys, "web", "-n", "shop")[0]
        assert 2 == self.ran(capsys, "deploy/web", "-A")[0]
