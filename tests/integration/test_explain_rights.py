"""Kinds that only explain reads: without a right to one, everything decides as before, and explain names the right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from typing import Any, Final

import pytest

from app.analysis.explain_snapshot import ExplainSnapshot
from app.commands import rbac
from app.config.profile import ANY
from app.config.settings import Settings
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import Api, serving
from tests.controlplane import objects
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.roles import Account, apply
from tests.integration.test_spread_stories import WEB, make_zones

COMPLETE: Final = Settings.model_validate({"explain": "complete"})
NAME: Final = "explains"
SECONDS: Final = 20.0


def printed(settings: Settings) -> list[Json]:
    account = rbac.Account("default", NAME)
    found: list[Json] = json.loads(rbac.run(settings, SHIPPED, DEFAULT_WEIGHTS, account, "json"))["items"]
    return found


WITHOUT: Final = printed(Settings())
ROLES: Final = printed(COMPLETE)


def rights(roles: list[Json]) -> set[tuple[str, str]]:
    rules = [rule for role in roles for rule in role.get("rules", ())]
    return {(rule["apiGroups"][0], it) for rule in rules for it in rule["resources"]}


def only_explains() -> Iterator[Any]:
    for group, resource in sorted(rights(ROLES) - rights(WITHOUT)):
        yield pytest.param(group, resource, id=resource)


def without(resource: str) -> list[Json]:
    roles = deepcopy(ROLES)
    for rule in (rule for role in roles for rule in role.get("rules", ())):
        rule["resources"] = [it for it in rule["resources"] if it != resource]
    return [
        {**it, "rules": [rule for rule in it["rules"] if rule["resources"]]} if "rules" in it else it for it in roles
    ]


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            while not await holds():  # noqa: ASYNC110  # the control plane has no event for it
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"timed out waiting for {what}")


def judged(explain: ExplainSnapshot) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        pending = [it for it in explain.not_usable(ANY).values() if it.endswith("not listed yet")]
        return not explain.problem() and not pending

    return holds


async def decisions(api: Api, pod: Json) -> tuple[str, Any, Any]:
    """``/readyz``, and what filter and prioritize answer."""
    request = {"Pod": pod, "NodeNames": ["zone-a-0", "zone-a-1", "zone-b-0"]}
    filtered, scored = await api.post("filter", request), await api.post("prioritize", request)
    return (await api.http.get("/readyz")).text, filtered.answer, scored.answer


@pytest.mark.parametrize(("group", "resource"), list(only_explains()))
async def test_each_right_that_is_taken_away(plane: ControlPlane, group: str, resource: str) -> None:
    client = plane.client
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    client.create(objects.pod("there", labels=WEB, node_name="zone-a-0"))
    pod = client.create(objects.pod("web", labels=WEB, spread_constraints=[objects.spread(WEB)]))
    account = Account(plane, NAME)
    settings = Settings(kubeconfig=str(account.kubeconfig))
    apply(client, WITHOUT)
    async with serving(settings) as api:
        await until(lambda: is_ready(api), "the snapshot of the decisions")
        before = await decisions(api, pod)

    apply(client, without(resource))
    async with serving(settings.model_copy(update={"explain": "complete"})) as api:
        await until(lambda: is_ready(api), "the snapshot of the decisions")
        await until(judged(api.service._explain), "the snapshot of explain")
        after = await decisions(api, pod)
        told = api.service._explain.not_usable(ANY)
        await until(lambda: is_checked(api), "the check of permissions")
        missing = (await api.get("/api/v1/status"))["permissions"]["missing"]
        verbose = (await api.http.get("/readyz?verbose")).text
        counted = await api.samples("homeport_permissions_missing")

    right = f"list and watch {'.'.join(filter(None, (resource, group)))}"
    assert {f"no permission to {right}"} == {*told.values()}
    assert before == after
    assert [right.replace(" and ", ", ")] == [it["right"] for it in missing]
    assert {"": 0.0} == counted
    assert "[-]" not in verbose
    assert f"[+]permissions ok: not allowed to {missing[0]['right']}, needed for explain alone" in verbose


async def is_ready(api: Api) -> bool:
    return (await api.http.get("/readyz")).status_code == 200


async def is_checked(api: Api) -> bool:
    return bool((await api.get("/api/v1/status"))["permissions"]["missing"])


async def test_with_all_rights_all_is_judged_as_the_scheduler_would(plane: ControlPlane) -> None:
    client = plane.client
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    account = Account(plane, NAME)
    apply(client, ROLES)
    async with serving(Settings(kubeconfig=str(account.kubeconfig), explain="complete")) as api:
        explain = api.service._explain
        await until(judged(explain), "the snapshot of explain")

        assert {} == explain.not_judged(ANY)
        assert {"zone-a-0", "zone-a-1", "zone-b-0"} == {*explain.cluster.nodes}
        assert explain.cluster.nodes["zone-a-0"].node.allocatable
        assert explain.age() < 60
        (feeds, states) = await asyncio.gather(api.get("/api/v1/status"), api.samples("homeport_objects"))
        assert not [it for it in (*feeds["feeds"], *states) if "CSINode" in it]
