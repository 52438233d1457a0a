"""The rendered roles are what `homeport rbac` prints for the configuration, and what a second scheduler needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

from app.commands.cluster_pages import PORT
from app.commands.cluster_pages import SERVICES as LABEL
from tests.chart.rendering import CI_VALUES, NAMESPACE, RELEASES, files, of_kind, pod_of, rendered, rendered_once, the
from tests.controlplane import objects
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane

WITH_ROLES: Final = [it for it in (*CI_VALUES, *RELEASES) if it.stem != "bare-values"]
SCHEDULERS_OWN: Final = ("kube-scheduler", "volume-scheduler")
CHASSIS: Final = objects.definition("Chassis", "chassis", group="example.com")

Right = tuple[str, str, str, str, str]
"""Namespace, verb, group, resource and the name of the object, if there is one."""


@pytest.mark.parametrize("values", WITH_ROLES, ids=lambda it: it.stem)
def test_roles_are_what_homeport_prints_for_its_configuration(
    plane: ControlPlane, tmp_path: Path, values: Path
) -> None:
    plane.client.install(CHASSIS)
    found = rendered_once(values)
    account = pod_of(found)["spec"]["serviceAccountName"]
    namespace = the(found, "Deployment")["metadata"]["namespace"]
    config = tmp_path / "homeport.yaml"
    config.write_text(files(found)["homeport.yaml"])
    command = [sys.executable, "-m", "homeport", "rbac", f"--config={config}", f"--kubeconfig={plane.kubeconfig}"]
    flags = [f"--namespace={namespace}", f"--service-account={account}", "--output=json"]
    printed = json.loads(subprocess.run([*command, *flags], capture_output=True, check=True, text=True).stdout)["items"]

    own = [it for it in found if not _is_the_schedulers(it) and not _is_for_callers(it)]
    assert _rights(printed) == _rights(own)
    assert _bound(printed) == _bound(own)


@pytest.mark.parametrize("values", WITH_ROLES, ids=lambda it: it.stem)
def test_every_rule_of_a_role_is_bound_to_the_pods_account(values: Path) -> None:
    found = rendered_once(values)
    namespace = the(found, "Deployment")["metadata"]["namespace"]
    account = {"kind": "ServiceAccount", "name": pod_of(found)["spec"]["serviceAccountName"], "namespace": namespace}
    bindings = [*of_kind(found, "ClusterRoleBinding"), *of_kind(found, "RoleBinding")]
    own = [it for kind in ("ClusterRole", "Role") for it in of_kind(found, kind) if not _is_for_callers(it)]
    roles = {(it["kind"], it["metadata"]["name"]) for it in own}

    assert [[account]] * len(bindings) == [it["subjects"] for it in bindings]
    assert roles <= {(it["roleRef"]["kind"], it["roleRef"]["name"]) for it in bindings}


def test_a_second_scheduler_has_the_built_in_roles_and_its_own_lease() -> None:
    found = rendered({})
    schedulers = [it for it in found if _is_the_schedulers(it)]

    assert [
        ("ClusterRoleBinding", None, "ClusterRole", "system:kube-scheduler"),
        ("ClusterRoleBinding", None, "ClusterRole", "system:volume-scheduler"),
        ("RoleBinding", "kube-system", "Role", "extension-apiserver-authentication-reader"),
        ("RoleBinding", NAMESPACE, "Role", "homeport-scheduler"),
    ] == sorted(
        (it["kind"], it["metadata"].get("namespace"), it["roleRef"]["kind"], it["roleRef"]["name"])
        for it in schedulers
        if "roleRef" in it
    )
    assert {
        (NAMESPACE, verb, "coordination.k8s.io", "leases", "homeport-scheduler") for verb in ("get", "update")
    } == _rights(schedulers)


def test_the_built_in_roles_are_there(plane: ControlPlane) -> None:
    for name in SCHEDULERS_OWN:
        assert plane.client.get("ClusterRole", f"system:{name}")["rules"]
    assert plane.client.get("Role", "extension-apiserver-authentication-reader", "kube-system")["rules"]


def test_no_scheduler_is_given_rights_where_there_is_none() -> None:
    assert [] == [it for it in rendered({"mode": "service"}) if _is_the_schedulers(it)]


def test_roles_can_be_left_to_others() -> None:
    found = rendered({"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "theirs"}})

    kinds = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount")
    assert [] == [it for kind in kinds for it in of_kind(found, kind)]
    assert "theirs" == pod_of(found)["spec"]["serviceAccountName"]
    (subject,) = {
        (it["namespace"], it["name"])
        for schema in of_kind(found, "FlowSchema")
        for rule in schema["spec"]["rules"]
        for it in [each["serviceAccount"] for each in rule["subjects"]]
    }
    assert (NAMESPACE, "theirs") == subject


@pytest.mark.parametrize("mode", ["scheduler", "service"])
def test_callers_of_the_operator_service_can_read_its_pages_and_no_other_service(mode: str) -> None:
    """``kubectl homeport`` searches the Service by its label, then asks the proxy for the name with scheme and port."""
    found = rendered({"mode": mode, "operatorService": {"enabled": True, "apiServerCIDRs": ["192.0.2.10/32"]}})
    (role,) = [it for it in of_kind(found, "Role") if _is_for_callers(it)]
    (service,) = [it for it in of_kind(found, "Service") if "homeport.dev/pages" in it["metadata"]["labels"]]
    (port,) = service["spec"]["ports"]
    name = f"http:{service['metadata']['name']}:{port['name']}"

    assert LABEL == f"homeport.dev/pages={service['metadata']['labels']['homeport.dev/pages']}"
    assert (NAMESPACE, PORT) == (service["metadata"]["namespace"], port["targetPort"])
    assert {
        (NAMESPACE, "list", "", "services", ""),
        *((NAMESPACE, verb, "", "services/proxy", name) for verb in ("get", "create")),
    } == _rights([role])


def _is_for_callers(thing: Json) -> bool:
    return bool(thing["kind"] == "Role" and thing["metadata"]["name"].endswith("-operator"))


def _is_the_schedulers(thing: Json) -> bool:
    """By what it binds, or by its name where it is the role for the scheduler's Lease."""
    ref = thing.get("roleRef", {}).get("name", "")
    lease = thing["kind"] in ("Role", "RoleBinding") and thing["metadata"]["name"].endswith("-scheduler")
    return bool(lease or ref.startswith(("system:", "extension-")))


def _rights(found: Iterable[Json]) -> set[Right]:
    return {
        (it["metadata"].get("namespace", ""), verb, group, resource, name)
        for it in found
        for rule in it.get("rules", ())
        if it["kind"] in ("ClusterRole", "Role")
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


def _bound(found: Sequence[Json]) -> list[tuple[str, str, str]]:
    """Kinds and namespaces of bindings with the rights that they bind; names of roles are the chart's own."""
    return sorted(
        (
            it["kind"],
            it["metadata"].get("namespace", ""),
            json.dumps([it["subjects"], it["roleRef"]["kind"]], sort_keys=True),
        )
        for it in found
        if it["kind"] in ("ClusterRoleBinding", "RoleBinding")
    )
