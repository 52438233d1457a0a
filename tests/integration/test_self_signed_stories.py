"""Two replicas that make their certificates themselves, with the rights that `homeport rbac` prints and no others."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import free_port
from tests.integration.roles import Account, apply, printed
from tests.integration.service import HTTP, Homeport, scheduler_config
from tests.integration.test_spread_stories import make_zones, wait_all_bound
from tests.integration.test_tls_stories import ELECTION, LEASE, WEB

NAME: Final = "homeport.default.svc"
HEAD: Final = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
SELF_SIGNED: Final = {
    "secretNamespace": "default",
    "secretName": "homeport-authority",
    "clientSecretName": "homeport-client",
    "dnsNames": [NAME],
}
SECRETS: Final = ("homeport-authority", "homeport-client")


@pytest.fixture
def replicas(plane: ControlPlane, tmp_path: Path) -> Iterator[list[Homeport]]:
    """Not yet begun. Nothing is in a file, but for the configuration."""
    config = tmp_path / "homeport.yaml"
    fields = {"leaderElection": ELECTION, "selfSigned": SELF_SIGNED, "allowedNames": ["homeport-scheduler"]}
    config.write_text(yaml.safe_dump({**HEAD, **fields, "host": "127.0.0.1"}))
    account = Account(plane, "self-signed")
    apply(plane.client, printed(config, account.name))
    for name in SECRETS:
        plane.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque"})
    found = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(Homeport(account.kubeconfig, folder, [f"--config={config}"], pages=free_port()))
    yield found
    for it in found:
        it.__exit__(None, None, None)
    if plane.client.find("Lease", "homeport") is not None:
        plane.client.request("DELETE", LEASE)


def begin(replicas: list[Homeport]) -> None:
    for it in replicas:
        it.begin()
    for it in replicas:
        it.wait_ready()


def stored(plane: ControlPlane, name: str) -> dict[str, bytes]:
    data = plane.client.get("Secret", name).get("data") or {}
    return {key: base64.b64decode(value) for key, value in data.items()}


def tls_config(plane: ControlPlane, folder: Path) -> dict[str, Any]:
    """As a pod that mounts the client's Secret would have it."""
    for name, value in stored(plane, "homeport-client").items():
        (folder / name).write_bytes(value)
    files = {"caFile": "ca.crt", "certFile": "tls.crt", "keyFile": "tls.key"}
    return {"serverName": NAME, **{key: str(folder / name) for key, name in files.items()}}


def make_pods(plane: ControlPlane, *names: str) -> list[str]:
    for name in names:
        plane.client.create(objects.pod(name, labels=WEB, spread_constraints=[objects.spread(WEB)]))
    return list(names)


@pytest.mark.parametrize("version", ["1.36.3", pytest.param("1.35.4", marks=pytest.mark.long)])
def test_a_scheduler_calls_with_the_pair_from_the_secret(
    plane: ControlPlane, tmp_path: Path, replicas: list[Homeport], version: str
) -> None:
    """It asks the follower, so that replicas must know each other; after a restart of both it need not be restarted."""
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    begin(replicas)
    plane.client.wait_for(lambda: stored(plane, "homeport-client"), what="the client's pair")
    leader, follower = sorted(replicas, key=lambda it: "follower" in _role(it))
    assert {"ca.crt", "ca.key"} == set(stored(plane, "homeport-authority"))
    assert {"ca.crt", "tls.crt", "tls.key"} == set(stored(plane, "homeport-client"))
    config = scheduler_config(follower, enableHTTPS=True, tlsConfig=tls_config(plane, tmp_path))

    with plane.start_scheduler(config, version):
        wait_all_bound(plane, make_pods(plane, "web-0", "web-1", "web-2"))
        assert ({"forwarded": 3}, {"bound": 3}) == (follower.outcomes("bind"), leader.outcomes("bind"))

        before = [plane.client.get("Secret", name)["metadata"]["resourceVersion"] for name in SECRETS]
        for it in replicas:
            it.kill()
        begin(replicas)
        wait_all_bound(plane, make_pods(plane, "web-3", "web-4"))

    assert before == [plane.client.get("Secret", name)["metadata"]["resourceVersion"] for name in SECRETS]
    assert "homeport_permissions_missing 0.0" in _metrics(leader)
    assert 3 == _metrics(leader).count("homeport_certificate_expiration_timestamp_seconds{")


def test_without_a_certificate_of_theirs_nobody_is_answered(plane: ControlPlane, replicas: list[Homeport]) -> None:
    begin(replicas)
    with httpx.Client(verify=False, trust_env=False) as stranger:
        answer = stranger.post(f"{replicas[0].url}/filter", json={}).json()

    assert "a client certificate of an authority" in answer["Error"]


def test_a_secret_with_something_else_in_it_is_left_alone_and_said(
    plane: ControlPlane, replicas: list[Homeport]
) -> None:
    theirs = {"ca.crt": base64.b64encode(b"theirs").decode(), "ca.key": base64.b64encode(b"theirs").decode()}
    plane.client.patch("Secret", "homeport-authority", {"data": theirs})
    first = replicas[0]
    first.begin()

    def told() -> bool:
        try:
            return "certificates: Secret default/homeport-authority" in _role(first)
        except httpx.TransportError:
            return False

    plane.client.wait_for(told, what="readiness to say why")
    assert {"ca.crt": b"theirs", "ca.key": b"theirs"} == stored(plane, "homeport-authority")


def _role(homeport: Homeport) -> str:
    return HTTP.get(f"{homeport.pages}/readyz", timeout=5).text


def _metrics(homeport: Homeport) -> str:
    return HTTP.get(f"{homeport.pages}/metrics", timeout=5).text
