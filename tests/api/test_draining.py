"""POST /api/v1/homes/drain: what a drain of a node would mean, for programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.homes.drain_page import DrainPlan
from tests.api.service import Api, serving
from tests.api.village import COMPLETE, DELEGATED, OWNERS, profiles, saved
from tests.builders import JsonObject

PATH = "/api/v1/homes/drain"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    whole = {**COMPLETE, "schedulerName": "*"}
    async with serving(Settings(cluster=str(saved(tmp_path)), profiles=profiles(whole))) as api:
        yield api


async def planned(api: Api, node: str) -> JsonObject:
    found: JsonObject = (await api.http.post(PATH, json={"node": node})).raise_for_status().json()
    assert DrainPlan.model_validate(found).model_dump(by_alias=True) == found
    return found


async def test_all_that_is_told_of_one(api: Api) -> None:
    found = await planned(api, "n1")

    (mail,) = [it for it in found["items"] if it["owner"]["name"] == "mail01"]
    (listed,) = (await api.http.get("/api/v1/homes", params={"name": "mail01"})).json()["items"]
    assert {
        **listed,
        "couldRunOn": ["n3"],
        "couldRunOnCount": 1,
        "goesTo": "n3",
        "waitsFor": "n1",
        "fitsAlone": True,
        "othersRefuse": mail["othersRefuse"],
        "then": "waits for n1; after its grace starts on n3",
        "judged": True,
    } == mail
    assert mail["othersRefuse"].startswith("1 of 3: ")
    head = {"node": "n1", "known": True, "profile": "", "preset": "complete", "notCounted": []}
    assert head == {name: found[name] for name in head}
    assert {"NodeResourcesFit", "PodTopologySpread"} <= {*found["counted"]}
    assert "StickyNode" not in found["counted"]
    assert ([], 0, 0, 0) == (found["others"], found["more"], found["moreOthers"], found["lost"])


async def test_a_profile_that_judges_alone_has_no_word_on_homes(tmp_path: Path) -> None:
    """By default arguments it would list those that no pod is in with another policy, for it comes first."""
    without = {"multiPoint": {"disabled": [{"name": "StickyNode"}]}}
    judge = {"schedulerName": "judge", "preset": "complete", "plugins": without}
    args = {"owners": OWNERS, "policy": "soft"}
    own = {**DELEGATED, "pluginConfig": [{"name": "StickyNode", "args": args}]}
    async with serving(Settings(cluster=str(saved(tmp_path)), profiles=profiles(judge, own))) as api:
        found = await planned(api, "n1")
        listed = (await api.http.get("/api/v1/homes")).raise_for_status().json()["items"]

    assert ("judge", "complete") == (found["profile"], found["preset"])
    assert ["starts on n3"] == [it["then"] for it in found["items"] if it["owner"]["name"] == "mail01"]
    idle = [it for it in listed if it["machine"] == "idle" and it["owner"]["kind"] == "VirtualMachine"]
    assert {"soft"} == {it["policy"] for it in idle}


async def test_a_node_that_there_is_not(api: Api) -> None:
    found = await planned(api, "n9")

    assert (False, ["lost01"]) == (found["known"], [it["owner"]["name"] for it in found["items"]])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "Invalid JSON"),
        (b'{"node": ""}', "at least 1 character"),
        (b'{"node": "n1", "evict": true}', "Extra inputs are not permitted"),
        (b'{"node": "' + b"x" * 254 + b'"}', "at most 253 characters"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(api: Api, body: bytes, told: str) -> None:
    answer = await api.http.post(PATH, content=body)

    assert (422, True) == (answer.status_code, told in answer.text)
