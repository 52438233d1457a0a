"""Requests for an explanation that are wrong, too large or about things that do not exist: each gets a good answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from app.analysis.workloads import MOST_PODS
from app.config.profile import Profile
from app.config.settings import Settings
from app.kube.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, owner_kind
from app.server.failures import NOT_SERVED
from app.wire.cycle_v1 import MOST_VALUES
from app.wire.explain_v1 import ExplainRequest
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.contract import status_breaches
from tests.api.service import Api, serving
from tests.api.small import NEW, SPREAD, WEB, saved
from tests.builders import JsonObject, constraint, controller, pod_object

FINISHED = " (finished pods are not in the snapshot)"

MANY: Final = 10_000
DATABASE: Final = owner_kind("example.com/v1", "Database")
PROFILE: Final = Profile.model_validate(
    {
        "schedulerName": "*",
        "pluginConfig": [
            {"name": "StickyNode", "args": {"owners": [{"apiVersion": "example.com/v1", "kind": "Database"}]}}
        ],
    }
)
OBJECTS: Final = [
    pod_object("cart-1", namespace="shop", labels={"app": "cart"}, owner=controller("StatefulSet", "cart")),
    pod_object("db-0", owner=controller("Database", "db", api_version="example.com/v1")),
    pod_object("claims", more={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
    pod_object("plain"),
    {
        "apiVersion": "example.com/v1",
        "kind": "Database",
        "metadata": {"name": "db", "namespace": "default", "uid": "uid-db"},
    },
]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    settings = Settings(cluster=saved(tmp_path, *OBJECTS), profiles=(PROFILE,))
    async with serving(settings, SHIPPED, DEFAULT_WEIGHTS) as api:
        yield api


async def refused(api: Api, path: str) -> tuple[int, str]:
    """Status and message; the body is a good ``Status``."""
    answer = await api.http.get(f"/api/v1/explain/{path}")
    assert [] == status_breaches(answer)
    return answer.status_code, answer.json()["message"]


class TestNames:
    @pytest.mark.parametrize(
        ("path", "message"),
        [
            pytest.param(
                "default/web-nw",
                'pods "web-nw" not found in namespace "default"; did you mean web-new?' + FINISHED,
                id="a pod",
            ),
            pytest.param(
                "default/cart-1",
                'pods "cart-1" not found in namespace "default", but in shop' + FINISHED,
                id="in another namespace",
            ),
            pytest.param(
                "shp/cart-7",
                'pods "cart-7" not found in namespace "shp", which has no pods; did you mean namespace shop?'
                + FINISHED,
                id="a namespace",
            ),
            pytest.param(
                "default/web-new?node=n4", 'nodes "n4" not found; did you mean n3, n2 or n1?', id="a short name"
            ),
            pytest.param("default/web-new?node=far-away", 'nodes "far-away" not found', id="a node unlike any"),
            pytest.param(
                "shop?kind=StatefulSet&name=crt",
                'no pods of StatefulSet "crt" found in namespace "shop"; did you mean cart?',
                id="a workload",
            ),
            pytest.param(
                "shop?kind=statefulset&name=cart",
                'no pods of statefulset "cart" found in namespace "shop"; did you mean kind StatefulSet?',
                id="a kind",
            ),
            pytest.param(
                "shp?kind=Job&name=cart",
                'no pods of Job "cart" found in namespace "shp", which has no pods; did you mean namespace shop?',
                id="the namespace of a workload",
            ),
            pytest.param(
                "default/x%1b%5b31m%00",
                r'pods "x\x1b[31m\x00" not found in namespace "default"' + FINISHED,
                id="no text",
            ),
            pytest.param("default/" + "x" * 3000, None, id="a very long one"),
            pytest.param("a/b/c", NOT_SERVED, id="another path"),
        ],
    )
    async def test_the_nearest_are_offered(self, api: Api, path: str, message: str | None) -> None:
        status, told = await refused(api, path)

        assert (404, True) == (status, len(told) < 400)
        assert message in (None, told)

    async def test_a_node(self, tmp_path: Path) -> None:
        async with serving() as api:
            assert (404, 'nodes "node-b22" not found; did you mean node-b2, node-c2 or node-b4?') == await refused(
                api, "shop/web-7d4b9c-new01?node=node-b22"
            )

    async def test_a_node_that_cannot_be_decoded(self, api: Api) -> None:
        api.service._cluster.mark_unreadable(NODES, ("", "odd"), "nonsense")

        assert (404, 'node "odd" cannot be decoded') == await refused(api, "default/web-new?node=odd")

    @pytest.mark.parametrize(
        "query",
        ["labelSelector=a%3D%3D%3D", "labelSelector=%00", "kind=Job", "name=x", "kind=&name="],
    )
    async def test_queries(self, api: Api, query: str) -> None:
        assert 422 == (await refused(api, f"default?{query}"))[0]

    @pytest.mark.parametrize("kind", ["Pod", "pods"])
    async def test_a_single_pod_has_its_own_path(self, api: Api, kind: str) -> None:
        path = "a single pod has the path /api/v1/explain/{namespace}/{pod}"
        assert (422, f"the request is invalid: kind: {path}") == await refused(api, f"default?kind={kind}&name=plain")

    @pytest.mark.parametrize(
        "path",
        [
            "explain/default/plain?",
            "explain/shop?kind=StatefulSet&name=cart&",
            "explain/default?labelSelector=a&",
            "pending?",
            "skew?",
            "homes?",
        ],
    )
    async def test_unknown_parameters(self, api: Api, path: str) -> None:
        """One that kubectl adds is known, and has no effect."""
        mistyped = await api.http.get(f"/api/v1/{path}nod=n1")

        assert (422, []) == (mistyped.status_code, status_breaches(mistyped))
        assert "the request is invalid: nod: the path has no such parameter" == mistyped.json()["message"]
        assert await api.get(f"/api/v1/{path}timeout=1s")

    async def test_unknown_parameters_of_a_post(self, api: Api) -> None:
        answer = await api.http.post("/api/v1/explain?node=n1", content=json.dumps({"name": "plain"}))

        assert (422, []) == (answer.status_code, status_breaches(answer))

    @pytest.mark.parametrize("path", ["explain/{}?labelSelector=app", "pending?namespace={}"])
    async def test_namespaces(self, tmp_path: Path, path: str) -> None:
        """The cluster's namespaces are known; one of them has no pods."""
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": it}} for it in ("default", "shop", "empty")
        ]
        async with serving(Settings(cluster=saved(tmp_path, *namespaces), profiles=(PROFILE,))) as api:
            empty = await api.get(f"/api/v1/{path.format('empty')}")
            missing = await api.http.get(f"/api/v1/{path.format('shp')}")

        assert ([], 0) == (empty["items"], empty["total"])
        assert (404, []) == (missing.status_code, status_breaches(missing))
        assert 'namespaces "shp" not found; did you mean shop?' == missing.json()["message"]


class TestManyPods:
    async def test_a_selector_that_matches_ten_thousand(self, tmp_path: Path) -> None:
        """The first are explained, and the number of the others is said."""
        labels = {"app": "many"}
        pods = [pod_object(f"p-{number:05}", labels=labels, node="n1" if number % 2 else "") for number in range(MANY)]
        async with serving(Settings(cluster=saved(tmp_path, *pods), profiles=(PROFILE,))) as api:
            told = await api.get("/api/v1/explain/default?labelSelector=app=many")
            page = await api.get("/api/v1/pending?namespace=default&start=4990")

        (item,) = told["items"]
        assert (MANY, MANY - MOST_PODS) == (told["total"], told["omitted"])
        assert [f"p-{number:05}" for number in range(0, 2 * MOST_PODS, 2)] == item["pods"]
        waiting = MANY // 2 + 2  # two pods of the small cluster wait, too
        assert (waiting, waiting - 4990) == (page["total"], len(page["items"]))

    async def test_an_answer_of_many_unlike_pods_is_bounded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After its time, pods are explained without remedies, and that is said."""
        monkeypatch.setattr("app.analysis.workloads.MOST_SECONDS_OF_ALL", 0.0)
        pods = [pod_object(f"p-{it}", labels={**WEB, "part": it}, spread=SPREAD) for it in "abc"]
        async with serving(Settings(cluster=saved(tmp_path, *pods), profiles=(PROFILE,))) as api:
            told = await api.get("/api/v1/explain/default?labelSelector=part")

        assert [([], True, "2 of 3 nodes fit")] * 3 == [
            (it["explanation"]["remedies"], it["explanation"]["incomplete"], it["explanation"]["summary"])
            for it in told["items"]
        ]


async def posted(api: Api, body: Any) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await api.http.post("/api/v1/explain", content=content)
    assert answer.status_code == 200 or [] == status_breaches(answer)
    return answer.status_code, answer.json()


def wide(count: int) -> JsonObject:
    """A pod with very many constraints."""
    return pod_object("wide", labels=WEB, spread=[constraint(f"example.com/{it}", app="web") for it in range(count)])


class TestPods:
    @pytest.mark.parametrize(
        ("pod", "told"),
        [
            pytest.param(wide(MOST_VALUES // 4), "pod: at most 10000 objects and commas", id="beyond the bounds"),
            pytest.param([], "pod", id="a list"),
            pytest.param(7, "pod", id="a number"),
            pytest.param(None, "give either pod or name", id="null"),
            pytest.param({"metadata": 1}, "metadata", id="metadata is a number"),
            pytest.param({"metadata": {"name": "x"}, "spec": []}, "spec", id="spec is a list"),
            pytest.param(
                {"metadata": {"name": "x"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}},
                "not a quantity",
                id="an amount that is none",
            ),
        ],
    )
    async def test_refused(self, api: Api, pod: Any, told: str) -> None:
        status, answer = await posted(api, {"pod": pod})

        assert (422, True) == (status, told in answer["message"])

    @pytest.mark.parametrize(
        "body", [b"", b"{", b"null", b"[]", b'"pod"', b"\xff", b'{"pod":{}', b'{"pod":{},"pod":1}']
    )
    async def test_no_request(self, api: Api, body: bytes) -> None:
        assert 422 == (await posted(api, body))[0]

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(
                {"metadata": {"name": "x", "namespace": "default"}, "spec": None, "status": None}, id="no spec"
            ),
            pytest.param(
                {
                    "metadata": {"name": "x", "namespace": "default", "labels": None, "annotations": {"a": None}},
                    "spec": {
                        "containers": [None, {"name": "a", "resources": None}],
                        "affinity": None,
                        "tolerations": [None],
                        "topologySpreadConstraints": None,
                        "volumes": [None],
                        "nodeSelector": {"a": None},
                        "schedulingGates": None,
                    },
                    "status": {"conditions": [None]},
                },
                id="null everywhere",
            ),
        ],
    )
    async def test_nulls(self, api: Api, pod: JsonObject) -> None:
        """As the API server reads them: as if the fields were absent. A container can be refused, with its field."""
        status, answer = await posted(api, {"pod": pod})

        assert status == 200 or "pod: " in answer["message"]

    async def test_keys_in_another_case(self, api: Api) -> None:
        """As in the API server: an unknown key of a pod is ignored. One of the request is a mistake."""
        odd = json.loads(json.dumps(NEW).replace('"topologySpread', '"TopologySPREAD'))
        status, found = await posted(api, {"pod": odd})

        assert (200, ["n1", "n2", "n3"]) == (status, found["feasible"])
        assert 422 == (await posted(api, {"Pod": NEW}))[0]

    async def test_very_many_constraints_within_the_bounds(self, api: Api) -> None:
        status, found = await posted(api, {"pod": wide(MOST_VALUES // 14)})

        assert (200, "NoNodeFits") == (status, found["verdict"])
        assert len(found["plugins"]["PodTopologySpread"]["tables"]) <= 8
        assert len(found["remedies"]) <= 5


class TestUnreadable:
    async def test_an_owner(self, api: Api) -> None:
        """The plugin that needs it gives no verdict; all others do."""
        api.service._cluster.mark_unreadable(DATABASE, ("default", "db"), "too large")

        found = await api.get("/api/v1/explain/default/db-0")

        (plugin,) = found["notJudged"]
        assert ("StickyNode", "databases: default/db cannot be read") == (plugin["plugin"], plugin["why"])
        assert (["n1", "n2", "n3"], None) == (found["feasible"], found["home"])
        assert "3 of 3 nodes fit, as far as judged here" == found["summary"]

    async def test_a_claim(self, api: Api) -> None:
        api.service._cluster.mark_unreadable(PERSISTENT_VOLUME_CLAIMS, ("default", "data"), "nonsense")

        found = await api.get("/api/v1/explain/default/claims")

        told = {it["plugin"]: it["why"] for it in found["notJudged"]}
        assert "persistentvolumeclaims: default/data cannot be read" == told["VolumeBinding"]


def test_a_long_request_can_name_a_node() -> None:
    """Requests above 64 KiB are decoded in another way."""
    pod = {"metadata": {"name": "web", "annotations": {"example.com/note": "x" * 70_000}}}

    assert "n1" == ExplainRequest.parse(json.dumps({"pod": pod, "node": "n1"}).encode()).node
