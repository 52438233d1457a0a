"""The operator's pages, and what is counted and exposed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.config.profile import DEFAULT_PROFILES, Profile
from app.config.settings import Settings
from app.kube.meta_v1 import whole_seconds
from tests.api.service import SAMPLE, VERSION, Api, example, serving
from tests.api.small import FOREIGN, OURS, TOO_MANY, binding, by_name, request, saved
from tests.apiserver import kubeconfig

PLUGINS = {
    "queueSort": ["PrioritySort"],
    "preFilter": ["PodTopologySpread", "StickyNode"],
    "filter": ["PodTopologySpread", "StickyNode"],
    "preScore": ["PodTopologySpread", "StickyNode"],
    "score": ["PodTopologySpread", "StickyNode"],
    "reserve": ["StickyNode"],
    "preBind": ["StickyNode"],
    "bind": ["DefaultBinder"],
    "postBind": ["StickyNode"],
}
OBJECTS = {
    "v1 Node": 12,
    "v1 Pod": 21,
    "v1 Service": 2,
    "v1 ReplicationController": 0,
    "v1 PersistentVolume": 0,
    "v1 PersistentVolumeClaim": 0,
    "apps/v1 ReplicaSet": 2,
    "apps/v1 StatefulSet": 0,
    "kubevirt.io/v1 VirtualMachine": 4,
    "kubevirt.io/v1 VirtualMachineInstance": 4,
}
HOMES = "homeport.dev/v1alpha1 Home"
"""In a saved cluster these are what Homeport has come to remember so far."""


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as api:
        yield api


@pytest.mark.parametrize(
    ("path", "content_type", "text"),
    [
        pytest.param("/livez", "text/plain; charset=utf-8", "ok\n", id="alive"),
        pytest.param("/readyz", "text/plain; charset=utf-8", "ok\n", id="ready"),
        pytest.param(
            "/api/v1/check", "application/json", '{"consistent":true,"differences":[]}', id="bookkeeping is right"
        ),
    ],
)
async def test_a_page(api: Api, path: str, content_type: str, text: str) -> None:
    response = await api.http.get(path)

    assert (200, content_type, text) == (response.status_code, response.headers["content-type"], response.text)


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
LINKED = {
    *("/docs", "/livez", "/readyz", "/metrics"),
    *("/api/v1/status", "/api/v1/check", "/api/v1/homes", "/api/v1/pending", "/api/v1/skew", "/api/v1/waiting"),
    *("/ui/", "/api/v1/overview", "/api/v1/nodes"),
}


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html;q=0, */*", "text/*", ""])
async def test_the_first_page_names_what_there_is(api: Api, accept: str) -> None:
    response = await api.http.get("/", headers={"accept": accept})

    found = response.json()
    assert ("application/json", "Accept") == (response.headers["content-type"], response.headers["vary"])
    assert {"name": "homeport", "version": VERSION} == {name: found[name] for name in ("name", "version")}
    assert LINKED == set(found["pages"])
    assert all(found["pages"].values())
    assert {f"{prefix}/{verb}" for prefix in ("", "/lean") for verb in ("filter", "prioritize", "preempt", "bind")} == {
        *found["verbs"]
    }


async def test_a_browser_gets_links_that_work(api: Api) -> None:
    response = await api.http.get("/", headers={"accept": BROWSER})

    links = re.findall(r'href="([^"]+)"', response.text)
    assert ("text/html; charset=utf-8", "Accept") == (response.headers["content-type"], response.headers["vary"])
    assert sorted(LINKED) == sorted(links)
    assert {200} == {(await api.http.get(link)).status_code for link in links}
    assert f"<h1>Homeport {VERSION}</h1>" in response.text
    assert "<script" not in response.text


@pytest.mark.parametrize("query", ["verbose", "verbose=", "verbose=true"])
async def test_ready_in_many_words(api: Api, query: str) -> None:
    response = await api.http.get(f"/readyz?{query}")

    first, *feeds, last = response.text.splitlines()
    assert (200, "[+]snapshot ok", "readyz check passed") == (response.status_code, first, last)
    (remembered,) = [it for it in feeds if it.startswith(f"[+]feed/{HOMES} ok: saved, ")]
    told = [f"[+]feed/{kind} ok: saved, {count} objects" for kind, count in OBJECTS.items()]
    assert sorted([*told, remembered]) == sorted(feeds)


async def test_not_ready_in_many_words_and_in_one(tmp_path: Path) -> None:
    """A cluster that nobody reaches. The word alone is what it always was."""
    settings = Settings(kubeconfig=str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    async with serving(settings) as api:
        short, long = [await api.http.get(f"/readyz{query}") for query in ("", "?verbose")]
        status = await api.get("/api/v1/status")

    lines = long.text.splitlines()
    assert (503, 503) == (short.status_code, long.status_code)
    assert (f"[-]snapshot failed: {short.text.strip()}", "readyz check failed") == (lines[0], lines[-1])
    assert {f"[-]feed/{kind} failed" for kind in (*OBJECTS, HOMES)} == {line.partition(": ")[0] for line in lines[1:-2]}
    assert lines[-2].startswith("[-]permissions failed: not checked")
    assert [] == status["permissions"]["missing"]
    assert status["permissions"]["problem"]


async def test_status_tells_version_feeds_and_profiles(api: Api) -> None:
    status = await api.get("/api/v1/status")

    assert {
        "version": VERSION,
        "problem": "",
        "saved_at": whole_seconds(datetime.fromtimestamp(SAMPLE.stat().st_mtime, UTC)),
        "feeds": {
            kind: {"state": "saved", "objects": count, "age_seconds": 0, "left_out": []}
            for kind, count in {**OBJECTS, HOMES: status["feeds"][HOMES]["objects"]}.items()
        },
        "leader": None,
        "permissions": None,
        "assumed_pods": 0,
        "profiles": [
            {
                "scheduler_name": "*",
                "preset": "delegated",
                "bind_recheck": [],
                "at_most": 0,
                "pick": False,
                "points": PLUGINS,
            }
        ],
        "unserved": {},
    } == {key: value for key, value in status.items() if key != "counters"}


async def test_status_tells_what_is_asked_at_bind_alone(tmp_path: Path) -> None:
    asked = {"preset": "complete", "bindRecheck": ["NodeName"], "plugins": {"filter": {"disabled": [{"name": "*"}]}}}
    async with serving(Settings(cluster=saved(tmp_path), profiles=(Profile.model_validate(asked),))) as api:
        (profile,) = (await api.get("/api/v1/status"))["profiles"]

    assert ("complete", ["NodeName"]) == (profile["preset"], profile["bind_recheck"])
    assert "filter" not in profile["points"]


async def test_status_tells_how_the_kept_counts_are_used(api: Api) -> None:
    for _ in range(3):
        await api.post("filter", example("filter-spread"))

    for level in (await api.get("/api/v1/status"))["counters"].values():
        assert {"entries", "hits", "misses", "bytes"} == level.keys()
        assert level["entries"] >= 1


async def test_feeds_are_listed_in_the_same_order_at_every_start(api: Api) -> None:
    feeds = list((await api.get("/api/v1/status"))["feeds"])

    assert ["v1 Node", "v1 Pod", *sorted(feeds[2:])] == feeds


async def test_metrics_count_every_request_by_verb_and_outcome(api: Api) -> None:
    for name in ("filter-spread", "filter-home", "prioritize-spread", "preempt", "bind-crowded", "bind-spread"):
        await api.post(verb, example(name)) if (verb := name.partition("-")[0]) else None  # type: ignore[arg-type]

    assert {
        '{outcome="feasible",verb="filter"}': 2,
        '{outcome="scored",verb="prioritize"}': 1,
        '{outcome="candidates",verb="preempt"}': 1,
        '{outcome="bind_conflict",verb="bind"}': 1,
        '{outcome="bound",verb="bind"}': 1,
    } == await api.samples("homeport_requests_total")


async def test_metrics_show_the_picture(api: Api) -> None:
    counted = await api.samples("homeport_objects")
    assert {f'{{kind="{HOMES}"}}'} == counted.keys() - {f'{{kind="{kind}"}}' for kind in OBJECTS}
    assert {f'{{kind="{kind}"}}': count for kind, count in OBJECTS.items()}.items() <= counted.items()
    assert {1.0} == set((await api.samples("homeport_feed_synced")).values())
    assert {"": 0} == await api.samples("homeport_assumed_pods")


async def test_requests_of_no_profile_are_told(tmp_path: Path) -> None:
    async with serving(Settings(cluster=saved(tmp_path), profiles=OURS)) as api:
        for verb in ("filter", "prioritize", "bind"):
            await api.post(verb, request(verb, FOREIGN))

        assert {"volcano": 3} == (await api.get("/api/v1/status"))["unserved"]
        assert {
            f'{{scheduler_name="volcano",verb="{verb}"}}': 1 for verb in ("filter", "prioritize", "bind")
        } == await api.samples("homeport_unserved_requests_total")


@pytest.mark.parametrize("profiles", [DEFAULT_PROFILES, (*OURS, *DEFAULT_PROFILES)])
async def test_every_name_is_served_where_a_profile_takes_the_rest(
    tmp_path: Path, profiles: tuple[Profile, ...]
) -> None:
    async with serving(Settings(cluster=saved(tmp_path), profiles=profiles)) as api:
        reply = await api.post("filter", by_name(FOREIGN))
        bound = await api.post("bind", binding(FOREIGN, "n1"))

        assert ({"n1": TOO_MANY}, "bind_conflict") == (reply.answer["FailedAndUnresolvableNodes"], bound.outcome)
        assert {} == (await api.get("/api/v1/status"))["unserved"]


class TestCountedForAScrape:
    """What is read off the whole picture, of the sample cluster."""

    async def test_refusals_are_told_by_plugin_and_reason_and_the_pod_until_it_is_bound(self) -> None:
        crowded = {**example("filter-spread"), "NodeNames": ["node-a1"]}
        reason = "node(s) didn't match pod topology spread constraints"
        async with serving() as api:
            for _ in range(2):
                assert "no_fit" == (await api.post("filter", crowded)).outcome
            refusals = await api.samples("homeport_refusals_total")
            answers = await api.samples("homeport_refusal_answers_total")
            waiting = await api.samples("homeport_unschedulable_pods")
            assert "bound" == (await api.post("bind", example("bind-spread"))).outcome
            placed = await api.samples("homeport_unschedulable_pods")

        assert {f'{{plugin="PodTopologySpread",reason="{reason}"}}': 2} == refusals
        assert 2 == sum(answers.values())
        assert {'{plugin="PodTopologySpread",profile="*"}': 1} == waiting
        assert {} == placed

    async def test_homes_by_state(self) -> None:
        async with serving() as api:
            before = await api.samples("homeport_homes")
            assert "bound" == (await api.post("bind", example("bind-first-boot"))).outcome
            after = await api.samples("homeport_homes")

        states = [f'{{profile="*",state="{state}"}}' for state in ("at_home", "waiting")]
        assert ([1, 2], [2, 2]) == ([before[it] for it in states], [after[it] for it in states])

    async def test_the_largest_skew_of_what_was_asked_for(self) -> None:
        async with serving() as api:
            zone = '{topology_key="topology.kubernetes.io/zone"}'
            assert zone not in await api.samples("homeport_topology_skew")
            await api.post("filter", example("filter-spread"))

            assert 2 == (await api.samples("homeport_topology_skew"))[zone]

    async def test_it_is_ready_and_has_no_lease(self) -> None:
        async with serving() as api:
            assert {"": 1} == await api.samples("homeport_ready")
            assert {} == await api.samples("homeport_leader_election_master_status")
