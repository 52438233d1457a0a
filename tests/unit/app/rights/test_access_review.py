"""What is missing is named once with what it is needed for; where nobody can tell, that is said once, too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from app.framework.uses import Use
from app.kube.kinds import SERVICES, Kind, partial_kind
from app.rights.access_review import AGAIN_SECONDS, CURE, STEADY_SECONDS, PermissionCheck, review
from app.rights.permissions import EnabledFeatures, LeaseName, Permission
from tests.apiserver import client_of
from tests.builders import JsonObject

RACKS: Kind[Any] = partial_kind("example.com/v1", "Rack")
WORK = EnabledFeatures(
    (Use("A", SERVICES), Use("A", RACKS, writes="a mark")), sampling_guard=False, lease=LeaseName("ns", "lock")
)
PICTURE = "the snapshot of the cluster, which every decision needs"
STATUS = "patch pods/status"
SERVICE = {"verb": "list", "resource": "services"}


class Reviewer:
    """An API server that only judges. ``denied`` are attributes of what it does not allow."""

    def __init__(self) -> None:
        self.denied: list[dict[str, str]] = []
        self.plural: str | None = "racks"
        self.answer: httpx.Response | None = None
        self.asked: list[JsonObject] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.answer is not None:
            return self.answer
        if request.url.path == "/apis/example.com/v1":
            served = [{"name": self.plural, "kind": "Rack", "namespaced": True}] if self.plural else []
            return httpx.Response(200, json={"resources": served})
        assert ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews") == (request.method, request.url.path)
        body = json.loads(request.content)
        attributes = body["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        denied = any(it.items() <= attributes.items() for it in self.denied)
        status = {"allowed": False, "reason": "no"} if denied else {"allowed": True}
        return httpx.Response(201, json={**body, "status": status})


class Case:
    """A check, whom it asks, and how many permissions it counted each time."""

    def __init__(self, check: PermissionCheck, server: Reviewer, counted: list[int]) -> None:
        self.check, self.server, self.counted = check, server, counted

    async def round(self) -> list[dict[str, Any]]:
        """What is logged in one."""
        with capture_logs() as logs:
            await self.check.check()
        return [dict(it) for it in logs]

    @property
    def missing(self) -> dict[str, str]:
        return {str(rule): rule.purpose for rule in self.check.missing}


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    server, counted = Reviewer(), list[int]()
    async with client_of(server) as client:
        yield Case(PermissionCheck(client, WORK, counted.append), server, counted)


@pytest.mark.parametrize(
    ("asked", "attributes"),
    [
        (Permission("list", "", "pods"), {"verb": "list", "resource": "pods"}),
        (Permission("patch", "", "pods/status"), {"verb": "patch", "resource": "pods", "subresource": "status"}),
        (
            Permission("update", "coordination.k8s.io", "leases", "ns", "lock"),
            {"verb": "update", "group": "coordination.k8s.io", "resource": "leases", "namespace": "ns", "name": "lock"},
        ),
    ],
)
def test_the_question(asked: Permission, attributes: dict[str, str]) -> None:
    assert {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    } == review(asked)


async def test_nothing_is_missing(case: Case) -> None:
    assert "not checked yet" == case.check.problem
    assert [] == await case.round()
    assert ([], "", [0], 17) == (case.check.missing, case.check.problem, case.counted, len(case.server.asked))


async def test_what_is_missing_is_named_once_with_what_it_is_needed_for(case: Case) -> None:
    case.server.denied = [SERVICE, {"subresource": "status"}]
    first, second = await case.round(), await case.round()

    fence = "fencing off a Binding that can still arrive, by the annotation homeport.dev/unclear-bind on its pod"
    woken = "making the scheduler retry a waiting pod for a plugin, by the annotation homeport.dev/activated"
    expected = {STATUS: f"{fence}; {woken}", "list services": f"{PICTURE}: read by A"}
    assert [(STATUS, f"{fence[:44]}…"), ("list services", f"{PICTURE[:44]}…")] == [
        (it["right"], it["needed_for"]) for it in first
    ]
    assert ([("right missing", "warning")] * 2, []) == ([(it["event"], it["log_level"]) for it in first], second)
    assert (expected, [2, 2]) == (case.missing, case.counted)


async def test_a_line_has_200_characters_whatever_is_missing(case: Case) -> None:
    case.server.denied = [{"verb": it} for it in ("get", "list", "watch", "patch", "create", "update")]
    lines = await case.round()

    texts = [
        " ".join((it["event"], *(f"{key}={it[key]!r}" for key in ("right", "needed_for", "cure")))) for it in lines
    ]
    assert (True, True) == (len(lines) > 3, all(len(it) <= 200 and it.endswith(f"cure='{CURE}'") for it in texts))


async def test_rights_that_come_and_go(case: Case) -> None:
    case.server.denied = [SERVICE]
    await case.round()
    case.server.denied = []
    granted = await case.round()
    case.server.denied = [SERVICE]
    again = await case.round()

    assert (["all permissions granted"], ["right missing"]) == (
        [it["event"] for it in granted],
        [it["event"] for it in again],
    )
    assert [1, 0, 1] == case.counted


@pytest.mark.parametrize(
    ("plural", "missing"),
    [
        pytest.param("rackses", ["list, watch rackses.example.com", "get, patch rackses.example.com"], id="its plural"),
        pytest.param(None, [], id="a kind that is not served counts as empty: nothing is lost"),
    ],
)
async def test_the_cluster_is_asked_about_kinds(case: Case, plural: str | None, missing: list[str]) -> None:
    case.server.plural = plural
    case.server.denied = [{"group": "example.com"}]
    await case.round()

    assert missing == list(case.missing)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        pytest.param(
            httpx.Response(403, json={"kind": "Status", "message": "you may not ask"}), "may not ask", id="no"
        ),
        pytest.param(httpx.Response(500, text="etcd"), "etcd (500)", id="a fault"),
        pytest.param(httpx.Response(200, text="<html>"), "discovery", id="a page of a proxy"),
    ],
)
async def test_where_it_cannot_be_asked_that_is_said_once(case: Case, answer: httpx.Response, cause: str) -> None:
    case.server.denied = [SERVICE]
    await case.round()
    case.server.answer = answer
    first, second = await case.round(), await case.round()

    assert (["permissions cannot be checked"], []) == ([it["event"] for it in first], second)
    assert cause in case.check.problem
    assert (["list services"], [1]) == (list(case.missing), case.counted)


async def test_it_asks_again_sooner_while_something_is_missing(tmp_path: Path) -> None:
    server, slept = Reviewer(), list[float]()
    server.denied = [SERVICE]

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        server.denied = []
        if len(slept) == 2:
            raise Enough

    async with client_of(server) as client:
        with pytest.raises(Enough):
            await PermissionCheck(client, WORK, sleep=sleep).run()

    assert [AGAIN_SECONDS, STEADY_SECONDS] == slept


async def test_what_only_explain_needs_is_named_but_not_counted() -> None:
    server, counted = Reviewer(), list[int]()
    work = EnabledFeatures((), sampling_guard=False, explained=(Use("A", SERVICES), Use("A", RACKS)))
    server.denied = [SERVICE, {"subresource": "status"}]
    async with client_of(server) as client:
        check = PermissionCheck(client, work, counted.append)
        await check.check()

    assert {STATUS: False, "list services": True} == {str(it): it.only_explains for it in check.missing}
    assert [1] == counted
