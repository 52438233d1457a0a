"""Service accounts with rights of their own, for tests that ask what Homeport needs."""

import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

from app.__main__ import main
from tests.controlplane.client import ApiError, Client, Json
from tests.controlplane.controlplane import ControlPlane

ACCOUNTS: Final = "/api/v1/namespaces/default/serviceaccounts"
RBAC: Final = "rbac.authorization.k8s.io"
_CONFLICT: Final = 409


class Account:
    """A service account of namespace ``default``, with a kubeconfig that says who it is."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.name = name
        self._client = plane.client
        put(self._client, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}, ACCOUNTS)
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = str(self._client.request("POST", f"{ACCOUNTS}/{name}/token", asked)["status"]["token"])
        config = json.loads(plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        self.kubeconfig: Path = plane.folder / f"kubeconfig-{name}"
        self.kubeconfig.write_text(json.dumps(config))

    def may(self, rules: Sequence[Json]) -> None:
        """All that it may do in the cluster."""
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": self.name}, "rules": rules}
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": self.name}
        subjects = [{"kind": "ServiceAccount", "name": self.name, "namespace": "default"}]
        bound = {**role, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": subjects}
        del bound["rules"]
        apply(self._client, [role, bound])


def apply(client: Client, found: Sequence[Json]) -> None:
    """Make roles and bindings what they are here, as ``kubectl apply`` would."""
    for it in found:
        namespace = it["metadata"].get("namespace", "")
        where = f"/namespaces/{namespace}" if namespace else ""
        put(client, it, f"/apis/{RBAC}/v1{where}/{it['kind'].lower()}s")


def printed(config: Path, name: str, *flags: str) -> list[Json]:
    """Roles and bindings for an account of namespace ``default``, as the command prints them."""
    command = ["rbac", f"--config={config}", f"--service-account={name}", "--namespace=default", "--output=json"]
    with redirect_stdout(StringIO()) as output:
        assert 0 == main([*command, *flags])
    items: list[Json] = json.loads(output.getvalue())["items"]
    return items


def put(client: Client, found: Json, collection: str) -> Any:
    try:
        return client.request("POST", collection, found)
    except ApiError as error:
        if error.status != _CONFLICT:
            raise
        return client.request("PUT", f"{collection}/{found['metadata']['name']}", found)
