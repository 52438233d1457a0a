"""The permissions in examples/rbac.yaml are enough: everything is done as a service account that has no others."""

import json
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_home_stories import boot, home_of, install_kubevirt
from tests.integration.test_spread_stories import WEB, make_zones

ROLE = Path(__file__).parents[2] / "examples" / "rbac.yaml"
RBAC = "rbac.authorization.k8s.io"
ACCOUNT = "/api/v1/namespaces/default/serviceaccounts"


def token_for_homeport(client: Client) -> str:
    """A token of a service account that is bound to the role of the example."""
    role, leases = (dict[str, Any](it) for it in yaml.safe_load_all(ROLE.read_text()))
    name = role["metadata"]["name"]
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    there = f"/apis/{RBAC}/v1/namespaces/{leases['metadata']['namespace']}"
    in_namespace = {**binding, "kind": "RoleBinding", "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name}}
    client.request("POST", f"{there}/roles", leases)
    client.request("POST", f"{there}/rolebindings", in_namespace)
    client.request("POST", f"/apis/{RBAC}/v1/clusterroles", role)
    client.request("POST", f"/apis/{RBAC}/v1/clusterrolebindings", binding)
    client.request("POST", ACCOUNT, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(client.request("POST", f"{ACCOUNT}/{name}/token", asked)["status"]["token"])


def refused_on_zone_a(homeport: Homeport, pod: dict[str, Any]) -> bool:
    """What a scheduler asks that shows the nodes of one zone only."""
    asked = {"Pod": pod, "NodeNames": ["zone-a-0", "zone-a-1"]}
    answer: dict[str, Any] = httpx.post(f"{homeport.url}/filter", json=asked, trust_env=False).json()
    return not answer["NodeNames"]


def nominated(client: Client, pod: str) -> str:
    return str(client.get("Pod", pod)["status"].get("nominatedNodeName", ""))


def test_the_example_role_is_enough(plane: ControlPlane, tmp_path: Path) -> None:
    """Lists, watches, binds, writes the home of a machine, leads a pod to a node it was not shown, holds the Lease."""
    install_kubevirt(plane.client)
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    machine = plane.client.create(objects.virtual_machine("db01"))
    config = json.loads(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token_for_homeport(plane.client)}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))

    settings = tmp_path / "homeport.yaml"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    settings.write_text(yaml.safe_dump({**head, "leaderElection": {"leaderElect": True}}))

    with Homeport(kubeconfig, tmp_path, [f"--config={settings}"]) as homeport, start_scheduler(plane, homeport):
        home = plane.client.wait_bound(boot(plane.client, machine, "first"))
        plane.client.wait_for(lambda: home_of(plane.client, "db01") == home, what="the home to be on the machine")
        plane.client.create(objects.pod("crowd", labels=WEB, node_name="zone-a-0"))
        spread = [objects.spread(WEB)]
        late = plane.client.create(
            objects.pod("late", labels=WEB, scheduler_name="homeport", spread_constraints=spread)
        )
        plane.client.wait_for(
            lambda: refused_on_zone_a(homeport, late) and nominated(plane.client, "late"), what="the pod to be led"
        )
        states = {it["state"] for it in homeport.get("/api/v1/status")["feeds"].values()}

        here = homeport.get("/api/v1/status")["leader"]["here"]

    assert nominated(plane.client, "late") == "zone-b-0"
    assert states == {"watching"}
    assert here
