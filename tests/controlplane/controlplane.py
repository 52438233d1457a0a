"""Starts a real etcd and kube-apiserver on loopback in about four seconds, and kube-schedulers beside them.

    with ControlPlane() as plane:
        plane.client.create_node(node("node-a"))
        scheduler = plane.start_scheduler({"profiles": [{"schedulerName": "homeport"}]})

There is no kubelet, and no controller-manager unless a test starts one: nodes never turn unready, pods never run, and a
ReplicaSet has the pods a test gives it. For that reason the API server runs without the admission plugins whose
counterpart is a controller.
"""

import json
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import httpx

from tests.controlplane.binaries import CONTROLLERS, DEFAULT_KUBERNETES, binary
from tests.controlplane.client import Client
from tests.controlplane.processes import Process, ProcessGroup, StartError, free_port

LOOPBACK: Final = "127.0.0.1"
USER: Final = "admin"
START_SECONDS: Final = 60
"""How long a component may take to be ready: many times what it needs, for a machine that is busy compiling."""

PORT_ATTEMPTS: Final = 4
PORT_TAKEN: Final = "address already in use"
UNMATCHED_ADMISSION: Final = "ServiceAccount,TaintNodesByCondition"
"""Admission that waits for a controller: for a service account to be made, for a taint of a new node to be removed."""

Started = TypeVar("Started")


class Scheduler:
    """One running kube-scheduler; as a context manager it is stopped at the end."""

    def __init__(self, process: Process, server: str, config_file: Path, token: str) -> None:
        self.process = process
        self.server = server
        self.config_file = config_file
        self._token = token

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask it to end and wait for it."""
        self.process.stop()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()

    def log(self) -> str:
        """All it has written so far."""
        return self.process.log()

    def metrics(self) -> str:
        """Its metrics in the text format of Prometheus."""
        # Its certificate is its own and signed by nobody; this is loopback.
        headers = {"Authorization": f"Bearer {self._token}"}
        answer = httpx.get(f"{self.server}/metrics", headers=headers, verify=False, trust_env=False)
        return answer.raise_for_status().text


class ControlPlane:
    """etcd and kube-apiserver in a folder of their own, gone with it after the `with` block or this process."""

    def __init__(
        self, kubernetes: str = DEFAULT_KUBERNETES, apiserver_flags: Sequence[str] = (), users: Sequence[str] = ()
    ) -> None:
        """Nothing starts yet. `apiserver_flags` come last, so that they override the ones given here.

        `users` are further ones who may do everything, for tests that ask who did what; see `kubeconfig_of`.
        """
        self.kubernetes = kubernetes
        self._tokens = {user: secrets.token_urlsafe(24) for user in users}
        self.token = secrets.token_urlsafe(24)
        self.folder = Path(tempfile.mkdtemp(prefix="homeport-control-plane-"))
        self.ca_file = self.folder / "certificates" / "apiserver.crt"
        self.kubeconfig = self.folder / "kubeconfig"
        self._flags = tuple(apiserver_flags)
        self._token_file = self.folder / "tokens.csv"
        self._schedulers = 0
        self._cleanup = ExitStack()
        self._cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._processes = ProcessGroup(self.folder)
        self._cleanup.callback(self._processes.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start both components and return when they are ready; `StartError`, with nothing left, when they are not."""
        try:
            self._etcd_url = _on_free_ports(self._start_etcd)
            self._port = _on_free_ports(self._start_apiserver_on)
            self._write_kubeconfig(self.kubeconfig, USER, self.token)
            self.client = Client(self.server, self.token, self.ca_file)
            self._cleanup.callback(self.client.close)
            self.client.wait_for(lambda: self.client.find("Namespace", "default"), what="namespace default")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process this control plane started and remove its folder; harmless when done before."""
        self._cleanup.close()

    @property
    def server(self) -> str:
        """The URL of the API server, the same one after a restart."""
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of etcd and of the API server that runs now."""
        return {"etcd": self._etcd.pid, "kube-apiserver": self._apiserver.pid}

    def stop_apiserver(self) -> None:
        """Take the API server down as a crash would; etcd and the schedulers go on.

        Asked to end, it would stay up to a minute for the watches that are open.
        """
        self._apiserver.kill()

    def start_apiserver(self) -> None:
        """Bring the API server back with its data, its certificate and its port, and wait until it is ready."""
        self._start_apiserver_on(self._port)

    def restart_apiserver(self) -> None:
        """Take the API server down and bring it back."""
        self.stop_apiserver()
        self.start_apiserver()

    def change_token(self) -> None:
        """Restart the API server with another token in the kubeconfig; whoever has the one of before is refused."""
        self.stop_apiserver()
        self.token = secrets.token_urlsafe(24)
        self._write_kubeconfig(self.kubeconfig, USER, self.token)
        self.client.change_token(self.token)
        self.start_apiserver()

    def start_scheduler(
        self, config: Mapping[str, Any] | None = None, version: str = "", flags: Sequence[str] = ()
    ) -> Scheduler:
        """Run a kube-scheduler under a KubeSchedulerConfiguration and return when its caches are filled.

        `config` holds what the test is about, such as profiles and extenders; kind, kubeconfig and leader election are
        filled in where it leaves them out. `version` defaults to that of the control plane.
        """
        self._schedulers += 1
        name = f"kube-scheduler-{self._schedulers}"
        config_file = self.folder / f"{name}.yaml"
        config_file.write_text(json.dumps(self._scheduler_configuration(config or {}), indent=2))
        executable = binary("kube-scheduler", version or self.kubernetes)

        def start(port: int) -> Scheduler:
            command = [str(executable), *self._scheduler_flags(config_file, name, port), *flags]
            process = self._processes.start(name, command)
            server = f"https://{LOOPBACK}:{port}"
            process.wait_ready(lambda: answers(f"{server}/readyz"), START_SECONDS)
            return Scheduler(process, server, config_file, self.token)

        return _on_free_ports(start)

    def start_controllers(self, *controllers: str) -> Process:
        """Run a kube-controller-manager with these controllers, and return when it is ready."""
        executable, name = binary(CONTROLLERS, self.kubernetes), CONTROLLERS

        def start(port: int) -> Process:
            flags = [
                f"--controllers={','.join(controllers)}",
                f"--kubeconfig={self.kubeconfig}",
                f"--authentication-kubeconfig={self.kubeconfig}",
                f"--authorization-kubeconfig={self.kubeconfig}",
                f"--secure-port={port}",
                f"--bind-address={LOOPBACK}",
                f"--cert-dir={self.folder / name}",
                "--leader-elect=false",
                "--kube-api-qps=1000",
                "--kube-api-burst=2000",
            ]
            process = self._processes.start(name, [str(executable), *flags])
            process.wait_ready(lambda: answers(f"https://{LOOPBACK}:{port}/healthz", self.token), START_SECONDS)
            return process

        return _on_free_ports(start)

    def _scheduler_configuration(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            **config,
            "clientConnection": {"kubeconfig": str(self.kubeconfig), **config.get("clientConnection", {})},
            "leaderElection": {"leaderElect": False, **config.get("leaderElection", {})},
        }

    def _scheduler_flags(self, config_file: Path, name: str, port: int) -> list[str]:
        return [
            f"--config={config_file}",
            f"--secure-port={port}",
            f"--bind-address={LOOPBACK}",
            f"--cert-dir={self.folder / name}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--v=3",
        ]

    def _start_etcd(self, port: int) -> str:
        url, peer_url = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{free_port()}"
        command = [str(binary("etcd", self.kubernetes)), *etcd_flags(self.folder, url, peer_url)]
        self._etcd = self._processes.start("etcd", command)
        self._etcd.wait_ready(lambda: answers(f"{url}/health"), START_SECONDS)
        return url

    def _start_apiserver_on(self, port: int) -> int:
        tokens = {USER: self.token, **self._tokens}
        self._token_file.write_text("".join(f'{it},{user},{user},"system:masters"\n' for user, it in tokens.items()))
        command = [str(binary("kube-apiserver", self.kubernetes)), *self._apiserver_flags(port), *self._flags]
        self._apiserver = self._processes.start("kube-apiserver", command)
        self._apiserver.wait_ready(lambda: answers(f"https://{LOOPBACK}:{port}/readyz", self.token), START_SECONDS)
        return port

    def _apiserver_flags(self, port: int) -> list[str]:
        # The API server makes this key for its certificate, before it reads the one for service accounts.
        key = self.ca_file.with_suffix(".key")
        return [
            f"--etcd-servers={self._etcd_url}",
            f"--secure-port={port}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.ca_file.parent}",
            f"--token-auth-file={self._token_file}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--disable-admission-plugins={UNMATCHED_ADMISSION}",
            "--enable-priority-and-fairness=false",
        ]

    def kubeconfig_of(self, user: str) -> Path:
        """A kubeconfig for one of the further users."""
        path = self.folder / f"kubeconfig-{user}"
        self._write_kubeconfig(path, user, self._tokens[user])
        return path

    def _write_kubeconfig(self, path: Path, user: str, token: str) -> None:
        path.write_text(kubeconfig(self.server, self.ca_file, user, token))


def etcd_flags(folder: Path, clients: str, peers: str) -> list[str]:
    """Flags of an etcd that keeps its data in ``folder``, for as long as a test lasts."""
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def kubeconfig(server: str, ca_file: Path, user: str, token: str) -> str:
    """Return the text of a kubeconfig for one user."""
    cluster = {"server": server, "certificate-authority": str(ca_file)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        "current-context": "test",
    }
    return json.dumps(config, indent=2)


def _on_free_ports(start: Callable[[int], Started]) -> Started:
    """Start something on a free port, and again on another one when somebody took the port in between."""
    for _ in range(PORT_ATTEMPTS - 1):
        try:
            return start(free_port())
        except StartError as error:
            if PORT_TAKEN not in str(error):
                raise
    return start(free_port())


def answers(url: str, token: str = "") -> bool:
    """Whether a component says that it is ready; the certificate of one that is starting is not known yet."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx.get(url, headers=headers, verify=False, trust_env=False, timeout=2).is_success
    except httpx.TransportError:
        return False
