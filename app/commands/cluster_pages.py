"""Pages of the Homeport that runs in a cluster, reached through its API server or by a port-forward."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Timer
from typing import Any, Final
from urllib.parse import quote
from weakref import finalize

import msgspec
from msgspec import Struct

from app.commands.service import CommandError, Server
from app.kube.api_errors import ApiError, KubeError
from app.kube.client import KubeClient
from app.kube.credentials import Login
from app.kube.decoding import Decoder

SERVICES: Final = "homeport.dev/pages=operator"
"""Label selector of the Services of operator listeners, as the chart labels them."""

PODS: Final = "app.kubernetes.io/name=homeport,app.kubernetes.io/component=scheduler"
"""Label selector of Homeport's pods, as the chart labels them."""

PORT: Final = 8889
"""Port of the operator listener in the chart's pods."""

_ANSWER_SECONDS: Final = 65.0
_FORWARD_SECONDS: Final = 10.0
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:([0-9]+)")
_STATUS: Final = "/api/v1/status"


class _Metadata(Struct, frozen=True):
    name: str
    namespace: str = "default"


class _Port(Struct, frozen=True):
    port: int
    name: str = ""


class _ServiceSpec(Struct, frozen=True):
    ports: tuple[_Port, ...] = ()


class _Service(Struct, frozen=True):
    metadata: _Metadata
    spec: _ServiceSpec = _ServiceSpec()


class _Condition(Struct, frozen=True):
    type: str
    status: str


class _PodStatus(Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Pod(Struct, frozen=True):
    metadata: _Metadata
    status: _PodStatus = _PodStatus()

    @property
    def is_ready(self) -> bool:
        return any(it.type == "Ready" and it.status == "True" for it in self.status.conditions)


class _Services(Struct):
    items: list[_Service] = []


class _Pods(Struct):
    items: list[_Pod] = []


_SERVICES: Final = Decoder[_Services](_Services)
_PODS: Final = Decoder[_Pods](_Pods)
_JSON: Final = Decoder[dict[str, Any]](dict[str, Any])


class ClusterConnection:
    """Connection to the API server of a cluster, used by one synchronous command."""

    def __init__(self, login: Login) -> None:
        """Check the credentials. Raises ``CredentialsError``."""
        self.login: Final = login
        self._client = KubeClient(login.credentials())
        self._runner = asyncio.Runner()  # keeps one event loop, because all requests share their connections
        finalize(self, self._runner.close)

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the answer to a GET. Raises ``KubeError``."""
        return self._runner.run(self._client.read(path, query, timeout=_ANSWER_SECONDS))

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Return the answer to a POST that stores nothing. Raises ``KubeError``."""
        return self._runner.run(self._client.review(path, body, timeout=_ANSWER_SECONDS))


class ServiceProxy:
    """Implementation of ``Pages`` by a Service, through the API server's proxy for services."""

    def __init__(self, connection: ClusterConnection, namespace: str, service: str, port: str) -> None:
        self._connection = connection
        name = quote(f"http:{service}:{port}", safe=":")
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{name}/proxy"

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send a GET request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        with _user_errors():
            return _JSON.decode(self._connection.get(f"{self._path}{path}", query))

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        with _user_errors():
            return _JSON.decode(self._connection.post(f"{self._path}{path}", body))


@contextmanager
def _user_errors() -> Iterator[None]:
    """Convert errors of the API server, or of Homeport behind its proxy, into ``CommandError``."""
    try:
        yield
    except ApiError as error:
        raise CommandError((error.message or str(error)).removeprefix("homeport: ")) from error
    except (KubeError, msgspec.DecodeError) as error:
        raise CommandError(str(error)) from error


def by_service(connection: ClusterConnection, namespace: str, missed: list[str]) -> tuple[ServiceProxy, str] | None:
    """Return the pages of the first operator Service that answers, and its name; ``None`` if there is none.

    ``namespace``: where to search; empty for all. The reasons for which nothing was found are added to ``missed``.
    """
    try:
        services = _SERVICES.decode(connection.get(_collection("services", namespace), {"labelSelector": SERVICES}))
    except (KubeError, msgspec.DecodeError) as error:
        missed.append(f"no Service of Homeport: {error}")
        return None
    for service in services.items:
        for port in service.spec.ports:
            pages = ServiceProxy(
                connection, service.metadata.namespace, service.metadata.name, port.name or f"{port.port}"
            )
            try:
                pages.get(_STATUS, {})
            except CommandError as error:
                missed.append(f"Service {service.metadata.namespace}/{service.metadata.name}: {error}")
            else:
                return pages, f"Service {service.metadata.namespace}/{service.metadata.name}"
    if not services.items:
        missed.append("no Service of Homeport")
    return None


class PortForward:
    """Implementation of ``Pages`` by ``kubectl port-forward`` to one pod, which ends with this object."""

    def __init__(self, login: Login, namespace: str, pod: str) -> None:
        """Start kubectl. Raises ``CommandError`` if it is missing or does not forward within ten seconds."""
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise CommandError("kubectl is not in PATH")
        flags = {"--kubeconfig": login.kubeconfig, "--context": login.context, "--as": login.impersonated}
        options = [text for name, value in flags.items() if value for text in (name, value)]
        command = [kubectl, *options, "-n", namespace, "port-forward", "--address=127.0.0.1", f"pod/{pod}", f":{PORT}"]
        self._process = subprocess.Popen(  # noqa: S603  # kubectl, with the user's own flags
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        finalize(self, self._process.terminate)
        self._server = Server((f"http://127.0.0.1:{self._port()}",))

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send a GET request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        return self._server.get(path, query)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        return self._server.post(path, body)

    def _port(self) -> str:
        """Return the local port, which kubectl prints. Raises ``CommandError``."""
        timer = Timer(_FORWARD_SECONDS, self._process.terminate)
        timer.start()
        printed: list[str] = []
        try:
            for line in self._process.stdout or ():
                if forwarding := _FORWARDING.search(line):
                    return forwarding[1]
                printed.append(line.strip())
        finally:
            timer.cancel()
        raise CommandError(" ".join(printed) or "kubectl port-forward does not answer")


def by_port_forward(connection: ClusterConnection, namespace: str, missed: list[str]) -> tuple[PortForward, str] | None:
    """Return the pages of the first ready pod that a port-forward reaches, and its name; ``None`` if there is none.

    ``namespace``: where to search; empty for all. The reasons for which nothing was found are added to ``missed``.
    """
    try:
        pods = _PODS.decode(connection.get(_collection("pods", namespace), {"labelSelector": PODS}))
    except (KubeError, msgspec.DecodeError) as error:
        missed.append(f"no pod of Homeport: {error}")
        return None
    ready = [pod.metadata for pod in pods.items if pod.is_ready]
    for pod in ready:
        try:
            pages = PortForward(connection.login, pod.namespace, pod.name)
            pages.get(_STATUS, {})
        except CommandError as error:
            missed.append(f"pod {pod.namespace}/{pod.name}: {error}")
        else:
            return pages, f"port-forward to pod {pod.namespace}/{pod.name}"
    if not ready:
        missed.append("no ready pod of Homeport")
    return None


def _collection(plural: str, namespace: str) -> str:
    scope = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    return f"/api/v1/{scope}{plural}"
