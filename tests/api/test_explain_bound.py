"""Bound pods, and homes as data: why a pod may stay, and until when another one waits."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from app.__main__ import main
from app.analysis.bound import GONE, STAYS
from app.config.profile import Profile
from app.config.settings import Settings
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import Api, serving
from tests.api.small import SPREAD, WEB, saved
from tests.builders import JsonObject, container, controller, node_object, pod_object

SINCE: Final = "2026-11-22T12:00:00Z"
DATABASES: Final = {"apiVersion": "example.com/v1", "kind": "Database", "perOrdinal": True}
HOMES: Final = Profile.model_validate(
    {
        "schedulerName": "*",
        "pluginConfig": [{"name": "StickyNode", "args": {"owners": [DATABASES], "gracePeriod": "1h"}}],
    }
)


def database(**annotations: str) -> JsonObject:
    """``_`` in a key is a hyphen."""
    written = {f"homeport.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {"name": "db", "namespace": "default", "uid": "uid-db", "annotations": written}
    return {"apiVersion": "example.com/v1", "kind": "Database", "metadata": metadata}


def member(ordinal: int, **fields: Any) -> JsonObject:
    return pod_object(f"db-{ordinal}", owner=controller("Database", "db", api_version="example.com/v1"), **fields)


OBJECTS: Final = [
    node_object("away", zone="z9", unschedulable=True),
    database(
        **{"home.0": "n1", "home.1": "n2", "home.2": "away", "home_since.2": f"away {SINCE} away", "home.3": "n9"},
    ),
    member(0, node="n1"),
    member(1, node="n3"),
    member(2, annotations={"homeport.dev/policy": "hard"}),
    member(3, annotations={"homeport.dev/policy": "soft"}),
    member(4),
    pod_object("web-2", labels=WEB, spread=SPREAD, node="n1"),
    pod_object("lost", node="n7"),
    pod_object("large", node="n1", containers=[container(resources={"requests": {"cpu": "3"}})]),
    *(
        pod_object(f"many-{name}", labels={"part": "of-many"}, node=f"n{node}")
        for name, node in zip("abc", "112", strict=True)
    ),
]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    settings = Settings(cluster=saved(tmp_path, *OBJECTS), profiles=(HOMES,))
    async with serving(settings, SHIPPED, DEFAULT_WEIGHTS) as api:
        yield api


async def explained(api: Api, pod: str) -> JsonObject:
    return dict(await api.get(f"/api/v1/explain/default/{pod}"))


def violated(answer: JsonObject) -> list[str]:
    return [it["plugin"] for it in answer["bound"]["verdicts"] if it["code"] != "Success"]


class TestBound:
    async def test_it_may_stay(self, api: Api) -> None:
        found = await explained(api, "db-0")

        assert ("Bound", "n1", True, "") == (
            found["verdict"],
            found["bound"]["name"],
            found["bound"]["fits"],
            found["bound"]["note"],
        )
        assert ([], ["n1"], []) == (violated(found), found["feasible"], found["remedies"])
        assert "bound to n1; no filter would reject it there now; if it were scheduled now, 1 of 4" in found["summary"]
        assert {*found["judges"]} == {it["plugin"] for it in found["bound"]["verdicts"]}

    @pytest.mark.parametrize(
        ("pod", "plugin", "feasible"),
        [
            pytest.param("db-1", "StickyNode", ["n2"], id="away from home"),
            pytest.param("web-2", "PodTopologySpread", ["n2", "n3"], id="too many in its zone"),
        ],
    )
    async def test_a_constraint_that_it_violates_now(
        self, api: Api, pod: str, plugin: str, feasible: list[str]
    ) -> None:
        found = await explained(api, pod)

        assert ([plugin], False, STAYS) == (violated(found), found["bound"]["fits"], found["bound"]["note"])
        assert f"; {plugin} would reject it there now;" in found["summary"]
        assert feasible == [it for it in found["feasible"] if it != "away"]

    async def test_it_takes_no_room_from_itself(self, api: Api) -> None:
        (room,) = (await explained(api, "large"))["resources"]

        assert ("3", "12", "4") == (room["requested"], room["free"], room["mostFree"])

    async def test_its_node_is_gone(self, api: Api) -> None:
        found = await explained(api, "lost")

        assert ("Bound", False, [], GONE) == (
            found["verdict"],
            found["bound"]["fits"],
            found["bound"]["verdicts"],
            found["bound"]["note"],
        )
        assert found["summary"].startswith("bound to n7; its node was not judged; if it were scheduled now, 3 of 4")

    async def test_bound_pods_of_a_workload_are_explained_by_node(self, api: Api) -> None:
        """Equal pods on one node together, and on others apart."""
        told = await api.get("/api/v1/explain/default?labelSelector=part=of-many")

        nodes = {tuple(it["pods"]): it["explanation"]["bound"]["name"] for it in told["items"]}
        assert {("many-a", "many-b"): "n1", ("many-c",): "n2"} == nodes


class TestHomes:
    async def test_as_data(self, api: Api) -> None:
        owner = {
            "apiVersion": "example.com/v1",
            "kind": "Database",
            "namespace": "default",
            "name": "db",
            "uid": "uid-db",
            "slot": "2",
        }

        assert {
            "owner": owner,
            "annotation": "homeport.dev/home.2",
            "node": "away",
            "state": "away",
            "cause": "cordoned",
            "policy": "hard",
            "policySource": "pod",
            "effect": "the pod waits",
            "waits": True,
            "since": "",
            "until": "",
            "recorded": True,
        } == (await explained(api, "db-2"))["home"]

    @pytest.mark.parametrize(
        ("pod", "told"),
        [
            ("db-0", ("n1", "usable", "grace", "only home passes", False, True)),
            ("db-3", ("n9", "gone", "soft", "all pass", False, True)),
            ("db-4", ("", "none", "grace", "all pass", False, False)),
        ],
    )
    async def test_of_other_pods(self, api: Api, pod: str, told: tuple[Any, ...]) -> None:
        home = (await explained(api, pod))["home"]

        assert told == tuple(home[it] for it in ("node", "state", "policy", "effect", "waits", "recorded"))

    async def test_none(self, api: Api) -> None:
        assert (await explained(api, "web-new"))["home"] is None

    async def test_pods_that_differ_in_their_policy_or_ordinal_are_not_equal(self, api: Api) -> None:
        """Same spec, labels and owner; each has a verdict of its own."""
        items = {it["name"]: it for it in (await api.get("/api/v1/pending?namespace=default"))["items"]}

        told = [(items[name]["plugin"], items[name]["feasible"]) for name in ("db-2", "db-3", "db-4")]
        assert [("StickyNode", 0), ("NodeUnschedulable", 3), ("NodeUnschedulable", 3)] == told


def waiting(since: str) -> list[JsonObject]:
    home = {"home.0": "away", "home_since.0": f"away {since} away"}
    return [node_object("away", unschedulable=True), database(**home), member(0)]


def _zulu(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def told(folder: Path, capsys: pytest.CaptureFixture[str], *objects: JsonObject) -> list[str]:
    """The text about ``db-0``."""
    config = folder / "config.json"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config.write_text(
        json.dumps({**head, "profiles": [HOMES.model_dump(mode="json", exclude_unset=True, by_alias=True)]})
    )
    cluster = saved(folder, *objects)
    assert 1 == main(["explain", "db-0", "-n", "default", "--saved", cluster, "--config", str(config), "-q"])
    return capsys.readouterr().out.splitlines()


class TestText:
    def test_until_when_a_pod_waits_and_how_its_home_is_released(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        since = datetime.now(UTC).replace(microsecond=0)
        lines = told(tmp_path, capsys, *waiting(_zulu(since)))

        until = _zulu(since + timedelta(hours=1))
        assert f"  waits for its home away (away: cordoned) until {until}; policy grace" in lines
        release = next(number for number, it in enumerate(lines) if it.startswith("- release the home: 3 nodes"))
        assert "    homeport homes release Database/db/0 -n default" == lines[release + 1]

    def test_hints_are_printed_only_if_nothing_was_proved(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A pod whose owner is missing: nothing can be tried."""
        lines = told(tmp_path, capsys, member(0))

        hint = lines.index("hints of single plugins (not tried; another plugin can still reject the node):")
        assert "- the pod's owner Database default/db is not in the snapshot: it must exist first" == lines[hint + 1]
