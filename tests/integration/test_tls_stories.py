"""A stock kube-scheduler and a Homeport that speak TLS, with certificates on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.certificates import Authority
from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import free_port
from tests.integration.service import HTTP, Homeport, start_scheduler
from tests.integration.test_spread_stories import make_zones, wait_all_bound
from tests.load.rotations import measured

WEB: Final = {"app": "web"}
SCHEDULER: Final = "system:kube-scheduler"
ELECTION: Final = {
    "leaderElect": True,
    "leaseDuration": "2s",
    "renewDeadline": "1500ms",
    "retryPeriod": "500ms",
    "resourceNamespace": "default",
    "resourceName": "homeport",
}
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases/homeport"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """With pairs for the service and for a scheduler."""
    found = Authority(tmp_path)
    found.issue("server", "homeport.example", "127.0.0.1")
    found.issue("scheduler", "scheduler.example", common_name=SCHEDULER)
    found.issue("other", "other.example")
    return found


def secured(authority: Authority) -> list[str]:
    folder = authority.file.parent
    return [
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--client-ca-file={authority.file}",
        f"--allowed-names={SCHEDULER}",
    ]


def tls_config(authority: Authority, pair: str = "") -> dict[str, Any]:
    """What an extender's entry says of TLS."""
    folder = authority.file.parent
    own = {"certFile": str(folder / f"{pair}.crt"), "keyFile": str(folder / f"{pair}.key")} if pair else {}
    return {"enableHTTPS": True, "tlsConfig": {"caFile": str(authority.file), **own}}


def make_pods(plane: ControlPlane, *names: str) -> list[str]:
    for name in names:
        plane.client.create(objects.pod(name, labels=WEB, spread_constraints=[objects.spread(WEB)]))
    return list(names)


def _is_told(plane: ControlPlane, name: str, why: str) -> bool:
    return any(why in it["message"] for it in plane.client.events(name))


def _has_new_certificates(homeport: Homeport) -> bool:
    return "certificates read" in homeport.log()


def test_a_scheduler_with_a_certificate_binds_and_others_are_told_why_not(
    plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    """The refusal stands on the pod: kube-scheduler shows of a broken handshake only that it broke."""
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    with Homeport(plane.kubeconfig, tmp_path, secured(authority), pages=free_port()) as homeport:
        for pair, why in (("", "a client certificate of an authority"), ("other", "none of the allowed names")):
            (name,) = make_pods(plane, f"web-{pair or 'nobody'}")
            with start_scheduler(plane, homeport, **tls_config(authority, pair)):
                plane.client.wait_for(partial(_is_told, plane, name, why), what="the refusal to be told")
            plane.client.delete("Pod", name)
        with start_scheduler(plane, homeport, **tls_config(authority, "scheduler")):
            wait_all_bound(plane, make_pods(plane, "web-0", "web-1", "web-2", "web-3"))

        assert {"bound": 4} == homeport.outcomes("bind")
        assert homeport.outcomes("filter")["forbidden"] >= 2


@pytest.fixture(params=["verbs", "peers"])
def pair(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path: Path, authority: Authority
) -> Iterator[tuple[Homeport, Homeport]]:
    """The leader and a follower. The hop goes to the verbs over TLS, or these are plain and it has its own listener."""
    config = tmp_path / "homeport.yaml"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config.write_text(yaml.safe_dump({**head, "leaderElection": ELECTION}))
    both = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        flags = [f"--config={config}", *secured(authority)]
        if request.param == "peers":
            flags = [*flags[:-1], "--tls=false", "--peer-host=127.0.0.1", f"--peer-port={free_port()}"]
        both.append(Homeport(plane.kubeconfig, folder, flags, pages=free_port(), plain=request.param == "peers"))
    try:
        for it in both:
            it.begin()
        for it in both:
            it.wait_ready()
        leader, follower = sorted(both, key=lambda it: "leader" in _role(it), reverse=True)
        yield leader, follower
    finally:
        for it in both:
            it.__exit__(None, None, None)
        plane.client.request("DELETE", LEASE)


def _role(homeport: Homeport) -> str:
    return HTTP.get(f"{homeport.pages}/readyz", timeout=5).text


def test_replicas_speak_tls_to_each_other(
    plane: ControlPlane, pair: tuple[Homeport, Homeport], authority: Authority
) -> None:
    """The scheduler asks the follower; after new certificates for all it goes on, and so after the leader's end."""
    leader, follower = pair
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    extender = tls_config(authority, "scheduler") if follower.url.startswith("https") else {}
    with start_scheduler(plane, follower, **extender):
        wait_all_bound(plane, make_pods(plane, "web-0", "web-1", "web-2"))
        assert {"forwarded": 3} == follower.outcomes("bind")
        assert {"bound": 3} == leader.outcomes("bind")

        authority.issue("server", "homeport.example", "127.0.0.1")
        for it in pair:
            plane.client.wait_for(partial(_has_new_certificates, it), what="new certificates")
        wait_all_bound(plane, make_pods(plane, "web-3", "web-4", "web-5"))
        assert {"bound": 6} == leader.outcomes("bind")

        leader.kill()
        plane.client.wait_for(lambda: "leader" in _role(follower).split(" of ")[0], what="the follower to lead")
        wait_all_bound(plane, make_pods(plane, "web-6"))


def test_no_call_fails_while_certificates_change() -> None:
    """A Go client, as kube-scheduler's is."""
    found = measured(6)

    assert ({}, 3) == (found["failed"], found["pairs_read"])
    assert found["connections"] > 20
