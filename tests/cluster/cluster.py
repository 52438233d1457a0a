"""A whole cluster: a control plane, three nodes with containerd, kubelet and kube-proxy, and a zone for each of them.

    with Cluster(archives) as cluster:
        cluster.kubectl("get", "nodes")

It runs inside the namespaces of `python -m tests.cluster`. Nodes do not enforce NetworkPolicies, and there is no DNS:
pods find the API server by its address.
"""

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from tests.cluster import images
from tests.cluster.namespaces import BRIDGE_ADDRESS, Node, lay_out_bridge
from tests.controlplane import binaries, tools
from tests.controlplane.binaries import Component
from tests.controlplane.client import Client
from tests.controlplane.controlplane import answers, etcd_flags, kubeconfig
from tests.controlplane.objects import ZONE_LABEL
from tests.controlplane.processes import Process, ProcessGroup

ZONES: Final[Mapping[str, str]] = {"node-a": "zone-a", "node-b": "zone-b", "node-c": "zone-c"}
SERVER: Final = f"https://{BRIDGE_ADDRESS}:6443"
SERVICES: Final = "10.77.0.0/16"
PODS: Final = "10.244.0.0/16"
START_SECONDS: Final = 120.0
_SOCKET: Final = "/run/containerd/containerd.sock"


class CommandError(Exception):
    """kubectl or helm failed; the message has the command and what it wrote."""


class Cluster:
    """A running cluster; everything it starts ends with the `with` block, or with this process."""

    def __init__(self, archives: Sequence[Path]) -> None:
        """Nothing starts yet. `archives`: the images that every node has."""
        self.folder = Path(tempfile.mkdtemp(prefix="homeport-cluster-"))
        self.kubeconfig = self.folder / "kubeconfig"
        self.ca_file = self.folder / "pki" / "apiserver.crt"
        self.token = secrets.token_urlsafe(24)
        self.nodes: dict[str, Node] = {}
        self._archives = archives
        self._cleanup = ExitStack()
        self._cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._processes = ProcessGroup(self.folder)
        self._cleanup.callback(self._processes.close)
        self._cleanup.callback(self._end_containers)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End everything; harmless when done before."""
        self._cleanup.close()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints as an administrator; `CommandError` when it fails."""
        return self._command(binaries.binary("kubectl"), *arguments, stdin=stdin)

    def helm(self, *arguments: str, major: int = 3) -> str:
        """What helm prints as an administrator; `CommandError` when it fails."""
        return self._command(tools.helm(f"helm-{major}"), *arguments)

    def apply(self, *manifests: Mapping[str, Any]) -> str:
        """Server-side apply of objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        return self.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(listed))

    def environment(self) -> dict[str, str]:
        """Variables with which any client of Kubernetes finds this cluster, and keeps its own files in its folder."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}

    def _command(self, program: Path, *arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [str(program), *arguments], input=stdin, capture_output=True, text=True, env=self.environment(), check=False
        )
        if done.returncode:
            told = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}".strip()
            raise CommandError(f"{program.name} {' '.join(arguments)} ended with {done.returncode}:\n{told}")
        return done.stdout

    # how it starts

    def _start(self) -> None:
        lay_out_bridge()
        for number, name in enumerate(ZONES, start=1):
            self.nodes[name] = Node(self._processes, name, number)
        with ThreadPoolExecutor() as pool:
            containers = [pool.submit(self._start_containerd, node) for node in self.nodes.values()]
            self._start_control_plane()
            for started in containers:
                started.result()
        for name, node in self.nodes.items():
            self._start_kubelet(node, ZONES[name])
        self.client.wait_for(self._all_ready, START_SECONDS, f"{', '.join(self.nodes)} to be ready")

    def _start_control_plane(self) -> None:
        self._start_etcd()
        self._start_apiserver()
        self.kubeconfig.write_text(kubeconfig(SERVER, self.ca_file, "admin", self.token))
        self.client = Client(SERVER, self.token, self.ca_file)
        self._cleanup.callback(self.client.close)
        key = self.ca_file.with_suffix(".key")
        self._start_component(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={self.ca_file}",
            "--use-service-account-credentials",
            "--controllers=*,-nodeipam",
            "--leader-elect=false",
        )
        self._start_component("kube-scheduler", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false")

    def _start_component(self, name: Component, *flags: str) -> Process:
        return self._processes.start(name, [str(binaries.binary(name)), *flags])

    def _start_etcd(self) -> None:
        clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        etcd = self._start_component("etcd", *etcd_flags(self.folder, clients, peers))
        etcd.wait_ready(lambda: answers(f"{clients}/health"), START_SECONDS)

    def _start_apiserver(self) -> None:
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{self.token},admin,admin,"system:masters"\n')
        key = self.ca_file.with_suffix(".key")
        apiserver = self._start_component(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=0.0.0.0",
            f"--advertise-address={BRIDGE_ADDRESS}",
            f"--cert-dir={self.ca_file.parent}",
            f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged",
        )
        apiserver.wait_ready(lambda: answers(f"{SERVER}/readyz", self.token), START_SECONDS)

    def _start_containerd(self, node: Node) -> None:
        network = self.folder / f"{node.name}-cni"
        network.mkdir()
        (network / "10-pods.conflist").write_text(json.dumps(_network(node), indent=2))
        config = self.folder / f"{node.name}-containerd.toml"
        config.write_text(_CONTAINERD.format(pause=images.PAUSE, network=network))
        containerd = node.start("containerd", "containerd", "--config", config)
        containerd.wait_ready(lambda: _succeeds(node.inside("ctr", "version")), START_SECONDS)
        for archive in self._archives:
            node.run("ctr", "--namespace=k8s.io", "images", "import", archive)

    def _start_kubelet(self, node: Node, zone: str) -> None:
        config = self.folder / f"{node.name}-kubelet.json"
        config.write_text(json.dumps(_KUBELET, indent=2))
        node.start(
            "kubelet",
            binaries.binary("kubelet"),
            f"--config={config}",
            f"--kubeconfig={self.kubeconfig}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            f"--node-labels={ZONE_LABEL}={zone}",
        )
        node.start(
            "kube-proxy",
            binaries.binary("kube-proxy"),
            f"--kubeconfig={self.kubeconfig}",
            f"--hostname-override={node.name}",
            f"--cluster-cidr={PODS}",
            "--proxy-mode=iptables",
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
        )

    def _all_ready(self) -> bool:
        ready = [
            node["metadata"]["name"]
            for node in self.client.list("Node")
            for condition in node.get("status", {}).get("conditions", [])
            if (condition["type"], condition["status"]) == ("Ready", "True")
        ]
        return sorted(ready) == sorted(self.nodes)

    def _end_containers(self) -> None:
        """What containerd started is not in our process group: shims, and the containers below them."""
        for process in Path("/proc").glob("[0-9]*/comm"):
            with suppress(OSError):
                if process.read_text().startswith("containerd-shim"):
                    os.kill(int(process.parent.name), 9)


def _network(node: Node) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}


_CONTAINERD: Final = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{network}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


_KUBELET: Final = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "clusterDomain": "cluster.local",
    "containerRuntimeEndpoint": f"unix://{_SOCKET}",
    "enforceNodeAllocatable": [],
    "evictionHard": {"memory.available": "1Mi"},
    "failCgroupV1": False,
    "failSwapOn": False,
    "imageGCHighThresholdPercent": 100,
    "oomScoreAdj": 0,
    "readOnlyPort": 0,
}
"""For a machine that is itself a container: nothing is limited, nothing is evicted, and cgroups v1 will do."""


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
