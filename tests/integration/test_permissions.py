"""What `homeport rbac` prints is enough and no more, and a right that is missing is named before it is missed."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.commands import rbac
from app.config.loading import load_settings
from app.config.settings import Settings
from app.kube.client import KubeClient
from app.kube.credentials import load
from app.rights.access_review import CURE, PermissionCheck
from app.rights.permissions import Rule
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.wiring import work_of
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.controlplane import objects
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.roles import Account, apply, printed
from tests.integration.service import HTTP, Homeport, start_scheduler
from tests.integration.test_home_identity import install_memory
from tests.integration.test_home_stories import boot, home_of, install_kubevirt
from tests.integration.test_replicas import FENCE
from tests.integration.test_spread_stories import WEB, make_zones

HEAD: Final = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
ELECTION: Final = {"leaderElect": True, "leaseDuration": "2s", "renewDeadline": "1500ms", "retryPeriod": "500ms"}
CHASSIS: Final = objects.definition("Chassis", "chassis", group="example.com")


def without(found: list[Json], resource: str) -> list[Json]:
    """The same roles without the rules for a resource."""
    return [
        {**it, "rules": [rule for rule in it["rules"] if resource not in rule["resources"]]} if "rules" in it else it
        for it in found
    ]


def configured(folder: Path, **settings: Any) -> Path:
    path = folder / "homeport.yaml"
    path.write_text(yaml.safe_dump({**HEAD, **settings}))
    return path


def ready(homeport: Homeport, query: str = "") -> str:
    return HTTP.get(f"{homeport.url}/readyz{query}").text


def refused_on_zone_a(homeport: Homeport, pod: dict[str, Any]) -> bool:
    """What a scheduler asks that shows the nodes of one zone only."""
    asked = {"Pod": pod, "NodeNames": ["zone-a-0", "zone-a-1"]}
    answer: dict[str, Any] = HTTP.post(f"{homeport.url}/filter", json=asked).json()
    return not answer["NodeNames"]


def bind(homeport: Homeport, pod: Json, node: str) -> str:
    """By this a scheduler makes itself known: pods of those that never called are not fenced off."""
    meta = pod["metadata"]
    asked = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": node}
    answer: dict[str, str] = HTTP.post(f"{homeport.url}/bind", json=asked, timeout=10).json()
    return answer.get("Error", "")


def nominated(client: Client, pod: str) -> str:
    return str(client.get("Pod", pod)["status"].get("nominatedNodeName", ""))


def fenced(client: Client, pod: str) -> bool:
    return FENCE in client.get("Pod", pod)["metadata"].get("annotations", {})


def missing_count(homeport: Homeport) -> int:
    text = HTTP.get(f"{homeport.url}/metrics").text
    (line,) = [it for it in text.splitlines() if it.startswith("homeport_permissions_missing ")]
    return int(float(line.split()[1]))


def test_the_least_role_is_enough_and_what_it_lacks_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    """Lists, watches, binds, writes a machine's home, nominates a pod, holds the Lease, fences at a take-over.

    Before, without one of its rules, Homeport is as ready as ever and says what will not work.
    """
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    machine = client.create(objects.virtual_machine("db01"))
    config = configured(tmp_path, smallestSample=1, leaderElection=ELECTION)
    account, roles = Account(plane, "homeport"), printed(config, "homeport")
    apply(client, without(roles, "pods/status"))

    with Homeport(account.kubeconfig, tmp_path, [f"--config={config}"]) as homeport:
        client.wait_for(lambda: missing_count(homeport), what="the check")
        (line,) = [it for it in ready(homeport, "?verbose").splitlines() if it.startswith("[-]")]
        told = [it for it in homeport.log().splitlines() if "right missing" in it]
        status = homeport.get("/api/v1/status")["permissions"]
        before = (ready(homeport), missing_count(homeport), status["problem"])
        assert "" == bind(homeport, client.create(objects.pod("called", scheduler_name="homeport")), "zone-a-0")
        client.create(objects.pod("waits", scheduler_name="homeport"))
        homeport.kill()
        apply(client, roles)

        homeport.start()
        client.wait_for(lambda: fenced(client, "waits"), what="the pod that waited to be fenced off")
        client.wait_for(lambda: ready(homeport) == "ok: leader\n", what="it to lead")
        with start_scheduler(plane, homeport):
            home = client.wait_bound(boot(client, machine, "first"))
            client.wait_for(lambda: home_of(client, "db01") == home, what="the home to be on the machine")
            client.create(objects.pod("crowd", labels=WEB, node_name="zone-a-0"))
            spread = [objects.spread(WEB)]
            late = client.create(objects.pod("late", labels=WEB, scheduler_name="homeport", spread_constraints=spread))
            client.wait_for(
                lambda: refused_on_zone_a(homeport, late) and nominated(client, "late"), what="the pod to be nominated"
            )
        lines = ready(homeport, "?verbose").splitlines()
        log = homeport.log()

    (missing,) = status["missing"]
    assert "patch pods/status" == missing["right"]
    assert f"[-]permissions failed: not allowed to patch pods/status, needed for {missing['needed_for']}" == line
    assert ["fencing", "making", "nominating"] == [it.split()[0] for it in missing["needed_for"].split("; ")]
    assert (1, True) == (len(told), CURE in told[0])
    assert ("ok: leader\n", 1, "") == before
    assert nominated(client, "late") == "zone-b-0"
    assert [] == [it for it in lines if it.startswith("[-]")]
    assert ["[+]leader ok: leader", "[+]permissions ok", "readyz check passed"] == lines[-3:]
    assert 1 == log.count("right missing")


EVERYTHING: Final = Settings.model_validate({"leader_election": ELECTION, "advertise_address": "127.0.0.1:1"})
PRINTED: Final[list[Json]] = json.loads(
    rbac.run(EVERYTHING, SHIPPED, DEFAULT_WEIGHTS, rbac.Account("default", "checked"), "json")
)["items"]


def each_rule() -> Iterator[Any]:
    for number, role in enumerate(PRINTED):
        for index, rule in enumerate(role.get("rules", ())):
            yield pytest.param(number, index, id=f"{' '.join(rule['verbs'])} {' '.join(rule['resources'])}")


def install_keepers(client: Client) -> None:
    """All kinds that these rules name: of one that is not served no right is missed."""
    install_kubevirt(client)
    install_memory(client)


def granted(rules: Iterable[Json]) -> set[tuple[str, ...]]:
    return {
        (verb, rule["apiGroups"][0], resource, *rule.get("resourceNames", ()))
        for rule in rules
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


def named(found: Iterable[Rule]) -> set[tuple[str, ...]]:
    return {
        (verb, rule.group, resource, *([rule.name] if rule.name else ()))
        for rule in found
        for verb in rule.verbs
        for resource in rule.resources
    }


async def until_missing(settings: Settings, account: Account, expected: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """What the check misses; the API server may take a moment to hear of a new role."""
    work = work_of(settings, resolve(settings.profiles, Registry(SHIPPED, DEFAULT_WEIGHTS)))
    async with KubeClient(load(str(account.kubeconfig))) as client:
        check = PermissionCheck(client, work)
        for _ in range(200):
            await check.check()
            if not check.problem and named(check.missing) == expected:
                break
            await asyncio.sleep(0.02)
    assert "" == check.problem
    return named(check.missing)


async def test_nothing_is_missing_from_the_least_role(plane: ControlPlane) -> None:
    install_keepers(plane.client)
    account = Account(plane, "checked")
    apply(plane.client, PRINTED)

    assert set() == await until_missing(EVERYTHING, account, set())


@pytest.mark.parametrize(("role", "index"), list(each_rule()))
async def test_each_rule_that_is_taken_away_is_named(plane: ControlPlane, role: int, index: int) -> None:
    install_keepers(plane.client)
    account = Account(plane, "checked")
    roles = deepcopy(PRINTED)
    taken = roles[role]["rules"].pop(index)
    apply(plane.client, roles)

    assert granted([taken]) == await until_missing(EVERYTHING, account, granted([taken]))


async def test_the_plural_of_a_custom_resource_is_the_cluster_s(plane: ControlPlane, tmp_path: Path) -> None:
    """``chassis``, and not what a rule would make of it."""
    plane.client.install(CHASSIS)
    plane.client.wait_for(lambda: plane.client.request("GET", "/apis/example.com/v1")["resources"], what="discovery")
    owner = {"apiVersion": "example.com/v1", "kind": "Chassis"}
    config = configured(tmp_path, profiles=[{"pluginConfig": [{"name": "StickyNode", "args": {"owners": [owner]}}]}])
    account = Account(plane, "checked")
    roles = await asyncio.to_thread(printed, config, "checked", f"--kubeconfig={account.kubeconfig}")
    apply(plane.client, without(roles, "chassis"))

    expected: set[tuple[str, ...]] = {(verb, "example.com", "chassis") for verb in ("get", "list", "watch", "patch")}
    assert expected == granted(it for it in roles[0]["rules"] if it["apiGroups"] == ["example.com"])
    assert expected == await until_missing(load_settings({}, config=str(config)), account, expected)
