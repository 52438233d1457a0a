"""GET /api/v1/homes: who lives where, page by page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin
from app.framework.spec import PluginArgs, PluginSpec
from app.framework.status import SUCCESS, Status
from app.homes.homes_page import HomesPage
from app.homes.protocol import Home, HomeOwner, HomesPlugin, Keeper, Policy, State, Whereabouts
from app.kube.core_v1 import Pod
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.contract import status_breaches
from tests.api.service import Api, serving
from tests.api.village import COMPLETE, DELEGATED, MACHINES, profiles, saved
from tests.apiserver import kubeconfig
from tests.builders import JsonObject

PATH = "/api/v1/homes"
ALL = ["db/0", "db/2", "db/10", "db01", "gone01", "idle01", "lost01", "mail01", "moved01", "odd01"]
"""In their order: by namespace, kind, name and ordinal, as a number."""


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    settings = Settings(cluster=str(saved(tmp_path)), profiles=profiles(DELEGATED, COMPLETE))
    async with serving(settings) as api:
        yield api


def names(found: JsonObject) -> list[str]:
    owners = [it["owner"] for it in found["items"]]
    return [f"{it['name']}/{it['slot']}" if it["slot"] else it["name"] for it in owners]


async def asked(api: Api, **query: str) -> Any:
    answer = await api.http.get(PATH, params=query)
    found = answer.raise_for_status().json()
    assert HomesPage.model_validate(found).model_dump(by_alias=True) == found
    return found


def shown(**fields: Any) -> JsonObject:
    """A home as it is listed: of mail01, unless something else is said."""
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "namespace": MACHINES,
        "name": "mail01",
        "uid": "uid-VirtualMachine-mail01",
        "slot": "",
    }
    return {
        "owner": owner,
        "node": "n1",
        "state": "usable",
        "machine": "at_home",
        "policy": "grace",
        "policySource": "default",
        "since": "",
        "mark": "",
        "pod": "launcher-mail01",
        "podNode": "n1",
        "contradiction": "",
        "away": False,
        "orphaned": False,
    } | fields


async def test_all_that_is_told_of_a_home(api: Api) -> None:
    assert [shown()] == (await asked(api, name="mail01"))["items"]


async def test_a_home_whose_owner_is_gone_is_told_of_as_far_as_it_is_remembered(api: Api) -> None:
    owner = {"name": "gone01", "uid": "uid-VirtualMachine-gone01"}
    fields = {"node": "n3", "state": "owner_gone", "machine": "idle", "pod": "", "podNode": "", "orphaned": True}

    assert [shown(**fields, owner=shown()["owner"] | owner)] == (await asked(api, name="gone01"))["items"]


async def test_each_home_is_listed_once_however_many_profiles_keep_it(api: Api) -> None:
    found = await asked(api)

    assert (ALL, "", 0) == (names(found), found["continue"], found["remaining"])
    assert [("VirtualMachine", "StickyNode", False), ("StatefulSet", "StickyNode", True)] == [
        (it["kind"], it["plugin"], it["perSlot"]) for it in found["keepers"]
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({"node": "n1"}, ["db/0", "db01", "mail01", "moved01"], id="on a node"),
        pytest.param({"podNode": "n1"}, ["db/0", "db/2", "mail01"], id="whose pod is on a node"),
        pytest.param({"podNode": "n1", "state": "none"}, ["free01"], id="whose pod has no home"),
        pytest.param({"kind": "VirtualMachine", "name": "db01"}, ["db01"], id="of an owner"),
        pytest.param({"state": "gone"}, ["lost01", "odd01"], id="in a state"),
        pytest.param({"machine": "elsewhere"}, ["db/2", "moved01"], id="whose pod runs elsewhere"),
        pytest.param({"orphaned": "true"}, ["gone01", "lost01", "odd01"], id="without their node, or their owner"),
        pytest.param({"away": "true"}, ["db/2", "idle01"], id="whose node takes no pods"),
        pytest.param({"labelSelector": "app=db"}, ["db/2"], id="whose pod has a label"),
        pytest.param({"labelSelector": "nobody"}, [], id="whose pod has a label that none has"),
        pytest.param({"contradictory": "true"}, ["db/2", "moved01", "odd01"], id="that cannot be"),
        pytest.param(
            {"contradictory": "false", "away": "false", "orphaned": "false", "node": "n1"},
            ["db/0", "db01", "mail01"],
            id="all that is asked must be so",
        ),
    ],
)
async def test_filters(api: Api, query: dict[str, str], expected: list[str]) -> None:
    assert expected == names(await asked(api, **query))


async def test_a_namespace_that_does_not_exist_is_offered_near_names(tmp_path: Path) -> None:
    file = saved(tmp_path)
    cluster = json.loads(file.read_text())
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MACHINES}}
    file.write_text(json.dumps({**cluster, "items": [*cluster["items"], space]}))
    async with serving(Settings(cluster=str(file), profiles=profiles(COMPLETE))) as api:
        for path in (PATH, "/api/v1/skew"):
            answer = await api.http.get(path, params={"namespace": "machine"})

            message = f'namespaces "machine" not found; did you mean {MACHINES}?'
            assert (404, message) == (answer.status_code, answer.json()["message"])


@pytest.mark.parametrize("limit", [1, 2, 5, 10, 11])
async def test_pages_follow_one_another(api: Api, limit: int) -> None:
    seen: list[str] = []
    token = ""
    while True:
        found = await asked(api, limit=str(limit), **({"continue": token} if token else {}))
        assert len(found["items"]) <= limit
        seen += names(found)
        token = found["continue"]
        assert len(ALL) - len(seen) == found["remaining"]
        assert bool(token) == bool(found["remaining"])
        if not token:
            break

    assert ALL == seen


async def test_contradictions_are_told_in_words(api: Api) -> None:
    found = await asked(api, contradictory="true")

    assert [
        ("n2", "its pod runs on n1"),
        ("n1", "its pod runs on n3"),
        ("'Not A Node'", "the annotation is not a valid node name"),
    ] == [(it["node"], it["contradiction"]) for it in found["items"]]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("limit=0", "greater than or equal to 1"),
        ("limit=1&limit=2", ""),
        ("orphan=true", "orphan: the path has no such parameter"),
        ("machine=asleep", "'at_home', 'elsewhere', 'waiting' or 'idle'"),
        ("state=asleep", "'unknown' or 'owner_gone'"),
        (f"node={'x' * 254}", "at most 253 characters"),
        ("continue=%ff", "not a token of an earlier page"),
        ("continue=WyJhIl0=", "not a token of an earlier page"),
        ("continue=%F0%9F%8F%A0", "not a token of an earlier page"),
        (f"continue={'A' * 5000}", "at most 4096 characters"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(api: Api, query: str, told: str) -> None:
    answer = await api.http.get(f"{PATH}?{query}")

    assert (200 if not told else 422) == answer.status_code
    assert told in answer.text
    assert not told or [] == status_breaches(answer)


async def test_a_token_goes_on_where_its_home_is_gone(api: Api) -> None:
    """It is a place, not a home."""
    token = (await asked(api, limit="4"))["continue"]

    assert ["odd01"] == names(await asked(api, state="gone", **{"continue": token}, name="odd01"))
    assert [] == names(await asked(api, name="db01", **{"continue": token}))


async def test_without_a_picture_nobody_is_told_half_of_it(tmp_path: Path) -> None:
    async with serving(Settings(kubeconfig=str(kubeconfig(tmp_path, "http://127.0.0.1:1")))) as api:
        answer = await api.http.get(PATH)

    assert (503, True) == (answer.status_code, answer.json()["message"].startswith("homeport: "))


class Village(FilterPlugin, HomesPlugin):
    """Of somebody else: many homes, and perhaps a fault."""

    def __init__(self, args: VillageArgs, _handle: Handle) -> None:
        self._args = args

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS

    def homes(self) -> Iterator[Home | None]:
        for number in range(self._args.count):
            yield None
            owner = HomeOwner("example.com/v1", "Hut", "default", f"hut-{number:05}", f"uid-{number}")
            yield Home(
                owner, "n1", State.USABLE, Whereabouts.IDLE, is_judged=self._args.judged, policy=self._args.policy
            )
        if self._args.fails:
            raise LookupError("no more")

    def home_of(self, pod: Pod) -> None:
        return None

    def keepers(self) -> tuple[Keeper, ...]:
        return (Keeper("example.com/v1", "Hut"),)


class VillageArgs(PluginArgs):
    count: int = 1
    fails: bool = False
    judged: bool = True
    policy: Policy | None = None


VILLAGE = PluginSpec("Village", VillageArgs, Village)


def with_village(name: str = "default-scheduler", **args: Any) -> JsonObject:
    """Plugins of no point of their own are put in where all are."""
    config = [{"name": "Village", "args": args}]
    return {
        "schedulerName": name,
        "plugins": {"multiPoint": {"enabled": [{"name": "Village"}]}},
        "pluginConfig": config,
    }


async def test_half_a_list_is_a_fault(tmp_path: Path) -> None:
    settings = Settings(cluster=str(saved(tmp_path)), profiles=profiles(with_village(fails=True)))
    async with serving(settings, (*SHIPPED, VILLAGE), DEFAULT_WEIGHTS) as api:
        answer = await api.http.get(PATH)

    assert (500, 'running Homes plugin "Village": no more') == (answer.status_code, answer.json()["message"])


async def test_more_homes_than_a_page_are_not_all_sorted_at_once_and_none_is_lost(tmp_path: Path) -> None:
    settings = Settings(cluster=str(saved(tmp_path)), profiles=profiles(with_village(count=3000)))
    async with serving(settings, (*SHIPPED, VILLAGE), DEFAULT_WEIGHTS) as api:
        pages = [await asked(api, kind="Hut", limit="500")]
        for _ in range(5):
            pages.append(await asked(api, kind="Hut", limit="500", **{"continue": pages[-1]["continue"]}))

    assert [f"hut-{number:05}" for number in range(3000)] == [name for page in pages for name in names(page)]
    assert (2500, 0, "") == (pages[0]["remaining"], pages[-1]["remaining"], pages[-1]["continue"])
