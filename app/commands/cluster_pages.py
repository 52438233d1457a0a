"""Pages of the Homeport that runs in a cluster, reached through its API server or by a port-forward."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread, Timer, current_thread, main_thread
from typing import Any, Final
from urllib.parse import quote
from weakref import finalize

import msgspec
from msgspec import Struct

from app.commands.service import CommandError, Server, check_status
from app.kube.api_errors import ApiError, KubeError
from app.kube.client import KubeClient
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import Login
from app.kube.decoding import Decoder

SERVICES: Final = "homeport.dev/pages=operator"
"""Label selector of the Services of operator listeners, as the chart labels them."""

PODS: Final = "app.kubernetes.io/name=homeport,app.kubernetes.io/component=scheduler"
"""Label selector of Homeport's pods, as the chart labels them."""

PORT: Final = 8889
"""Port of the operator listener in the chart's pods."""

_ANSWER_SECONDS: Final = 65.0
"""Maximum seconds until an answer. A what-if can take a minute."""

_FORWARD_SECONDS: Final = 10.0
"""Maximum seconds until a port-forward is ready."""

_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:([0-9]+)")
_SIGNALLED: Final = 128
"""Exit code of a process that a signal ended, minus the number of the signal, as in a shell."""

_MOST_NAMES: Final = "500"
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403


class _Metadata(Struct, frozen=True):
    name: str
    namespace: str = "default"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Port(Struct, frozen=True, rename="camel"):
    port: int
    name: str = ""
    app_protocol: str = ""

    @property
    def scheme(self) -> str:
        return "https" if "https" in (self.name.lower(), self.app_protocol.lower()) else "http"


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


class _Named(Struct):
    metadata: _Metadata


class _NamedObjects(Struct):
    items: list[_Named] = []


_NAMED: Final = Decoder[_NamedObjects](_NamedObjects)
_SERVICES: Final = Decoder[_Services](_Services)
_PODS: Final = Decoder[_Pods](_Pods)
_JSON: Final = Decoder[dict[str, Any]](dict[str, Any])


class ClusterConnection:
    """Connection to the API server of a cluster, for a single command without an event loop."""

    def __init__(self, login: Login) -> None:
        """Load the credentials, without a request to the API server. Raises ``CredentialsError``."""
        self.login: Final = login
        self._credentials = login.credentials()  # called only once, because it can run an exec plugin

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the answer to a GET. Raises ``KubeError``."""
        return self._answer(lambda client: client.read(path, query, timeout=_ANSWER_SECONDS))

    def read(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the answer of the API server itself, not of a proxied Service, to a GET.

        Raises ``ApiError`` if it refuses, and ``CommandError`` if it does not answer or rejects the credentials.
        """
        try:
            return self.get(path, query)
        except ApiError as error:
            if error.status == _UNAUTHORIZED:
                raise CommandError(self._credentials.rejection(error.message or str(error))) from error
            raise
        except KubeError as error:
            raise CommandError(f"the API server ({self._credentials.server}) does not answer: {error}") from error

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Return the answer to a POST that stores nothing. Raises ``KubeError``."""
        return self._answer(lambda client: client.review(path, body, timeout=_ANSWER_SECONDS))

    def _answer(self, request: Callable[[KubeClient], Coroutine[Any, Any, bytes]]) -> bytes:
        async def answer() -> bytes:
            async with KubeClient(self._credentials) as client:
                return await request(client)

        return asyncio.run(answer())


def names_at(login: Login, path: str) -> list[str]:
    """Return the names of the first 500 objects in the list at a path of the API server; none if that fails."""
    try:
        answer = ClusterConnection(login).get(path, {"limit": _MOST_NAMES})
        return [it.metadata.name for it in _NAMED.decode(answer).items]
    except (CredentialsError, KubeError, msgspec.DecodeError):
        return []


def _end_on_sigterm() -> None:
    """Unless SIGTERM has a handler, make it raise ``SystemExit``, so that this process also ends its port-forward."""
    if current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(_SIGNALLED + number))


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


class ServiceProxy:
    """Implementation of ``Pages`` with a Service, through the API server's proxy for Services."""

    def __init__(self, connection: ClusterConnection, service: _Service, port: _Port) -> None:
        self._connection = connection
        namespace, name = service.metadata.namespace, service.metadata.name
        name = quote(f"{port.scheme}:{name}:{port.name or port.port}", safe=":")
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
    """Convert errors of the API server, or of Homeport behind the API server's proxy, into ``CommandError``."""
    try:
        yield
    except ApiError as error:
        raise CommandError((error.message or str(error)).removeprefix("homeport: ")) from error
    except (KubeError, msgspec.DecodeError) as error:
        raise CommandError(str(error)) from error


def by_service(connection: ClusterConnection, namespace: str, missed: list[str]) -> tuple[ServiceProxy, str] | None:
    """Return the pages of the first operator Service that answers, and a text that names it; ``None`` if none answers.

    ``namespace``: where to search; empty for all namespaces. If Services cannot be listed, if there is none, or if one
    does not answer, the reason is added to ``missed``. Raises ``CommandError`` if the API server does not answer or
    rejects the credentials, or if several namespaces have such Services.
    """
    try:
        services = _SERVICES.decode(connection.read(_collection("services", namespace), {"labelSelector": SERVICES}))
    except (ApiError, msgspec.DecodeError) as error:
        missed.append(f"no Service of Homeport: {error}{_advice(error, namespace)}")
        return None
    _check_namespaces("Services", [it.metadata for it in services.items])
    for service in services.items:
        for port in service.spec.ports:
            pages = ServiceProxy(connection, service, port)
            try:
                check_status(pages)
            except CommandError as error:
                missed.append(f"Service {service.metadata}: {error}")
            else:
                return pages, f"Service {service.metadata}, through the API server"
    if not services.items:
        missed.append("no Service of Homeport")
    return None


class PortForward:
    """Implementation of ``Pages`` with ``kubectl port-forward`` to one pod. The port-forward ends with this object."""

    def __init__(self, login: Login, namespace: str, pod: str) -> None:
        """Start kubectl. Raises ``CommandError`` if kubectl is missing, or does not forward within ten seconds."""
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise CommandError("kubectl is not in PATH")
        flags = {"--kubeconfig": login.kubeconfig, "--context": login.context, "--as": login.impersonated}
        options = [text for name, value in flags.items() if value for text in (name, value)]
        command = [kubectl, *options, "-n", namespace, "port-forward", "--address=127.0.0.1", f"pod/{pod}", f":{PORT}"]
        _end_on_sigterm()
        self._process = subprocess.Popen(  # noqa: S603  # kubectl, with the user's own flags
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        finalize(self, _end, self._process)
        self.url: Final = f"http://127.0.0.1:{self._port()}"
        self._server = Server(self.url)

    def wait(self) -> int:
        """Wait until the user presses Ctrl-C, and return 0. Raises ``CommandError`` if kubectl ends first."""
        try:
            self._process.wait()
        except KeyboardInterrupt:
            return 0
        raise CommandError("kubectl port-forward has ended")

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send a GET request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        return self._server.get(path, query)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        return self._server.post(path, body)

    def _port(self) -> str:
        """Return the local port, which kubectl prints. Raises ``CommandError`` if kubectl prints no port."""
        timer = Timer(_FORWARD_SECONDS, self._process.kill)
        timer.start()
        printed: list[str] = []
        try:
            for line in self._process.stdout or ():
                if forwarding := _FORWARDING.search(line):
                    Thread(target=self._process.communicate, daemon=True).start()  # else a full pipe blocks kubectl
                    return forwarding[1]
                printed.append(line.strip())
        finally:
            timer.cancel()
        self._process.communicate()
        raise CommandError(" ".join(printed) or "kubectl port-forward does not answer")


def by_port_forward(connection: ClusterConnection, namespace: str, missed: list[str]) -> tuple[PortForward, str] | None:
    """Return the pages of the first ready pod that answers by a port-forward, and a text that names it; else ``None``.

    ``namespace``: where to search; empty for all namespaces. If pods cannot be listed, if none is ready, or if one does
    not answer, the reason is added to ``missed``. Raises ``CommandError`` if the API server does not answer or rejects
    the credentials, or if several namespaces have ready pods of Homeport.
    """
    try:
        pods = _PODS.decode(connection.read(_collection("pods", namespace), {"labelSelector": PODS}))
    except (ApiError, msgspec.DecodeError) as error:
        missed.append(f"no pod of Homeport: {error}{_advice(error, namespace)}")
        return None
    ready = [pod.metadata for pod in pods.items if pod.is_ready]
    _check_namespaces("pods", ready)
    for pod in ready:
        try:
            pages = PortForward(connection.login, pod.namespace, pod.name)
            check_status(pages)
        except CommandError as error:
            missed.append(f"pod {pod}: {error}")
        else:
            return pages, f"pod {pod}, through kubectl port-forward"
    if not ready:
        missed.append("no ready pod of Homeport")
    return None


def _check_namespaces(what: str, candidates: Iterable[_Metadata]) -> None:
    """Raise ``CommandError`` if the candidates are in several namespaces, so that the user must choose one.

    Trying all of them would be unsafe: whoever can create a Service or a pod can give it Homeport's labels.
    """
    namespaces = sorted({it.namespace for it in candidates})
    if len(namespaces) > 1:
        choices = " or ".join(namespaces)
        raise CommandError(f"Homeport has {what} in several namespaces: use --homeport-namespace {choices}")


def _advice(error: Exception, namespace: str) -> str:
    """Return the advice to name a namespace if the user is not allowed to list all namespaces; else an empty text."""
    is_forbidden = isinstance(error, ApiError) and error.status == _FORBIDDEN
    return " (--homeport-namespace searches one namespace)" if is_forbidden and not namespace else ""


def _collection(plural: str, namespace: str) -> str:
    scope = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    return f"/api/v1/{scope}{plural}"
