"""``homeport rbac`` prints what a configuration needs, and the example is what it prints for none."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app import __main__ as command_line
from app.__main__ import main
from app.config.settings import Settings
from tests.builders import JsonObject

EXAMPLE: Final = Path(__file__).parents[4] / "examples" / "rbac.yaml"
HEAD: Final = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
REPLICAS: Final = {
    "host": "0.0.0.0",
    "insecure": True,
    "leaderElection": {"leaderElect": True, "resourceNamespace": "scheduling", "resourceName": "lock"},
}


def owners(*rules: JsonObject) -> JsonObject:
    """A profile whose homes are kept so."""
    return {"profiles": [{"pluginConfig": [{"name": "StickyNode", "args": {"owners": list(rules)}}]}]}


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*(f"HOMEPORT_{it.upper()}" for it in (*Settings.model_fields, "config")), "POD_IP", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(command_line, "configure", lambda *_: None)  # logs are set up for a whole process


@pytest.fixture
def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(config: JsonObject, *flags: str) -> str:
        path = tmp_path / "homeport.yaml"
        path.write_text(yaml.safe_dump({**HEAD, **config}))
        assert 0 == main(["rbac", f"--config={path}", *flags])
        return capsys.readouterr().out

    return run


def granted(text: str) -> dict[str, set[str]]:
    """``verb resource.group`` by the kind of role."""
    found: dict[str, set[str]] = {}
    for role in yaml.safe_load_all(text):
        for rule in role.get("rules", ()):
            found.setdefault(role["kind"], set()).update(
                f"{verb} {resource}.{rule['apiGroups'][0]} {' '.join(rule.get('resourceNames', ()))}".rstrip(" .")
                for verb in rule["verbs"]
                for resource in rule["resources"]
            )
    return found


def test_the_example_is_what_is_printed_without_configuration(printed: Any) -> None:
    assert EXAMPLE.read_text() == printed({})


def test_no_pod_is_patched_and_a_machine_s_instance_only_read(printed: Any) -> None:
    writes = {it for it in granted(printed({}))["ClusterRole"] if it.split()[0] not in ("get", "list", "watch")}

    events = {"create events.events.k8s.io", "patch events.events.k8s.io"}
    homes = {f"{verb} homes.homeport.dev" for verb in ("create", "patch", "delete")}
    assert {"create pods/binding", "patch pods/status", "patch virtualmachines.kubevirt.io", *events, *homes} == writes


@pytest.mark.parametrize(
    ("config", "more", "less"),
    [
        pytest.param(
            owners({"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}),
            {"get statefulsets.apps", "patch statefulsets.apps"},
            {f"{verb} virtualmachines.kubevirt.io" for verb in ("get", "list", "watch", "patch")}
            | {f"{verb} virtualmachineinstances.kubevirt.io" for verb in ("get", "list", "watch")},
            id="homes on other owners",
        ),
        pytest.param(
            owners({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}),
            {"patch virtualmachineinstances.kubevirt.io"},
            {f"{verb} virtualmachines.kubevirt.io" for verb in ("get", "list", "watch", "patch")},
            id="homes on instances",
        ),
        pytest.param(
            owners({"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True, "remember": "uid"}),
            {"get statefulsets.apps", "patch statefulsets.apps"},
            {f"{verb} virtualmachines.kubevirt.io" for verb in ("get", "list", "watch", "patch")}
            | {f"{verb} virtualmachineinstances.kubevirt.io" for verb in ("get", "list", "watch")}
            | {f"{verb} homes.homeport.dev" for verb in ("get", "list", "watch", "create", "patch", "delete")},
            id="homes that end with their owners",
        ),
        pytest.param(
            {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}}}]},
            set(),
            {
                f"{verb} {resource}"
                for verb in ("list", "watch")
                for resource in ("services", "replicationcontrollers", "replicasets.apps", "statefulsets.apps")
            },
            id="a plugin less",
        ),
        pytest.param(
            {"events": False}, set(), {"create events.events.k8s.io", "patch events.events.k8s.io"}, id="without Events"
        ),
        pytest.param({"samplingGuard": False}, set(), set(), id="the fence needs what the sampling guard needs"),
        pytest.param({"cluster": "saved.yaml"}, set(), set(), id="what it would need on a live cluster"),
    ],
)
def test_the_role_follows_the_configuration(printed: Any, config: JsonObject, more: set[str], less: set[str]) -> None:
    before, after = granted(EXAMPLE.read_text()), granted(printed(config))

    assert {"ClusterRole": (before["ClusterRole"] | more) - less} == after


def test_replicas_have_a_role_where_their_lease_is(printed: Any) -> None:
    """Away from a pod, where nobody knows the address that it will have."""
    found = granted(printed(REPLICAS))

    assert {
        "get leases.coordination.k8s.io lock",
        "watch leases.coordination.k8s.io lock",
        "update leases.coordination.k8s.io lock",
        "create leases.coordination.k8s.io",
    } == found["Role"]


def test_who_has_the_roles(printed: Any) -> None:
    found = list(yaml.safe_load_all(printed(REPLICAS, "--namespace=apart", "--service-account=hp")))

    subjects = [{"kind": "ServiceAccount", "name": "hp", "namespace": "apart"}]
    assert [
        ("ClusterRole", {"name": "hp"}, None),
        ("ClusterRoleBinding", {"name": "hp"}, subjects),
        ("Role", {"name": "hp", "namespace": "scheduling"}, None),
        ("RoleBinding", {"name": "hp", "namespace": "scheduling"}, subjects),
    ] == [(it["kind"], it["metadata"], it.get("subjects")) for it in found]
    assert ["ClusterRole", "Role"] == [it["roleRef"]["kind"] for it in found if "roleRef" in it]


def test_a_user_has_them_where_there_is_no_service_account(printed: Any) -> None:
    """As a static pod has none."""
    found = [it for it in yaml.safe_load_all(printed(REPLICAS, "--user=homeport")) if "subjects" in it]

    assert [[{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "homeport"}]] * 2 == [
        it["subjects"] for it in found
    ]


def test_json_is_the_same_in_one_list(printed: Any) -> None:
    listed = json.loads(printed(REPLICAS, "--output=json"))

    assert ("v1", "List") == (listed["apiVersion"], listed["kind"])
    assert list(yaml.safe_load_all(printed(REPLICAS))) == listed["items"]


def test_every_rule_has_its_reason(printed: Any) -> None:
    pairs = list(pairwise(printed(REPLICAS).splitlines()))

    assert [] == [
        rule for before, rule in pairs if rule.startswith("- ") and "apiGroups" in rule and before[:2] != "# "
    ]


def test_a_plural_that_nobody_knows_is_a_guess_that_says_so(printed: Any) -> None:
    text = printed(owners({"apiVersion": "example.com/v1", "kind": "Policy"}))

    assert "patch policies.example.com" in granted(text)["ClusterRole"]
    assert 3 == text.count("# the plural of example.com/v1 Policy is a guess, no cluster was reachable: ")


def test_mistakes_are_told_as_by_serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "homeport.yaml"
    path.write_text(yaml.safe_dump({**HEAD, **owners({"kind": "Policy"})}))

    assert 2 == main(["rbac", f"--config={path}"])
    assert "pluginConfig StickyNode: owners[0].apiVersion" in capsys.readouterr().err
