"""Sources of credentials: a kubeconfig or a pod's service account, read with the ``kubernetes`` library."""

# The ``kubernetes`` library is marked as typed, but its configuration module is not, so mypy allows untyped calls here.
# mypy: allow-untyped-calls

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import yaml
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

REREAD_SECONDS: Final = 60.0
"""Seconds between two reads of credential files.

A minute is short enough, because the kubelet replaces a token when a fifth of its lifetime is left.
"""

_NO_FILE: Final = "there is no such file"

_LIBRARY_ERRORS: Final = (
    ConfigException,
    yaml.YAMLError,
    OSError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
)
"""Exceptions of the library and of file reads if files are missing, unreadable, malformed or too deeply nested."""


class CredentialsError(Exception):
    """Raised if credentials are not available. The message names the source and, if known, context and user."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings: the CA, certificate and key files, in this order, and ``verify``.

    ``files``: names of the files, ``None`` for a file that the source does not set. ``contents``: contents of the files
    that are set. A comparison of the contents shows if the kubelet, cert-manager or an exec plugin has replaced a file.
    ``verify`` is false if the server's certificate is not checked.
    """

    files: tuple[str | None, ...]
    contents: tuple[bytes, ...]
    verify: bool


@dataclass(frozen=True, slots=True)
class LoadedCredentials:
    """Credentials read from a source.

    ``expires`` is a Unix time, infinite if unknown. ``reread`` is the number of seconds until the source is read again,
    infinite for an exec plugin. ``renews_certificate`` is true for an exec plugin: it issues a new certificate before
    the old one has expired.
    """

    server: str
    authorization: str
    tls: Tls
    tls_server_name: str
    proxy: str
    expires: float
    reread: float
    renews_certificate: bool = False


class Source(Protocol):
    """Source of credentials. Its ``str`` is its name in error messages."""

    def check(self) -> None:
        """Check the credentials without running an exec plugin. Raises ``CredentialsError``."""
        ...

    def read(self) -> LoadedCredentials:
        """Read the credentials. Raises ``CredentialsError``.

        This blocks the thread. It can run an exec plugin, or store a new OIDC token in the kubeconfig.
        """
        ...

    def namespace(self, *, required: bool) -> str:
        """Return the default namespace; empty if the source has none. Raises ``CredentialsError``.

        If ``required``, the error is also raised if the source does not exist.
        """
        ...


def source_of(kubeconfig: str, service_account: Path, context: str = "") -> Source:
    """Return the source of credentials: ``kubeconfig`` if it is not empty, else the service account of the pod.

    ``~/.kube/config`` takes the place of the service account if there is none, or if ``context`` is not empty.
    """
    if kubeconfig:
        return Kubeconfig(kubeconfig, context)
    if not context and os.environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").is_file():
        return ServiceAccount(service_account)
    return Kubeconfig("~/.kube/config", context)


class ServiceAccount:
    """Service account of the pod in which Homeport runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return f"service account {self._folder}"

    def check(self) -> None:
        self.read()

    def read(self) -> LoadedCredentials:
        target = _Target()
        with credentials_errors(str(self)):
            token, authority = str(self._folder / "token"), str(self._folder / "ca.crt")
            InClusterConfigLoader(token_filename=token, cert_filename=authority).load_and_set(target)
            return target.loaded(expires=inf, reread=REREAD_SECONDS)

    def namespace(self, *, required: bool) -> str:  # required is unused, because source_of has found the token file
        with credentials_errors(str(self)):
            file = self._folder / "namespace"
            return file.read_text().strip() if file.is_file() else ""


class Kubeconfig:
    """Credentials of one context in one or more kubeconfig files, merged like kubectl does.

    ``context``: name of the context; empty for the current one.
    """

    def __init__(self, files: str, context: str = "") -> None:
        self._files = files
        self._context = context
        self._where = f"kubeconfig {files}"

    def __str__(self) -> str:
        return self._where

    def check(self) -> None:
        opened = self._open()
        with credentials_errors(self._where):
            missing = [*_missing_files(opened), *_missing_plugin(opened)]
            if missing:
                raise ConfigException("; ".join(missing))

    def read(self) -> LoadedCredentials:
        opened, target = self._open(), _Target()
        with credentials_errors(self._where):
            runs_plugin = _uses_exec_plugin(opened.user)
            expires = _run_plugin(opened) if runs_plugin else inf
            opened.loader.load_and_set(target)
            loaded: LoadedCredentials = target.loaded(expires, inf if runs_plugin else REREAD_SECONDS)
            return replace(loaded, renews_certificate=runs_plugin)

    def namespace(self, *, required: bool) -> str:
        with credentials_errors(f"kubeconfig {self._files}"):
            config = KubeConfigMerger(self._files).config
            if config is None and required:
                raise ConfigException(_NO_FILE)
            current = None if config is None else self._context or config.safe_get("current-context")
            if not current:
                return ""
            namespace = config["contexts"].get_with_name(current)["context"].safe_get("namespace")
            return str(namespace or "")

    def _open(self) -> _Opened:
        self._where = f"kubeconfig {self._files}"
        with credentials_errors(self._where):
            merger = KubeConfigMerger(self._files)
            if merger.config is None:
                raise ConfigException(_NO_FILE)
            # Like kubectl, store a new refresh token of an OIDC user in the file; config_persister does this.
            loader = KubeConfigLoader(
                merger.config,
                active_context=self._context or None,
                config_base_path=None,
                config_persister=merger.save_changes,
            )
            context = loader.current_context
        self._where += f", context {context['name']}, user {context['context'].get('user', '(none)')}"
        with credentials_errors(self._where):
            return _opened(merger.config, loader, context["context"])


@dataclass(frozen=True, slots=True)
class _Opened:
    loader: Any
    cluster: Any
    user: Any


def _opened(config: Any, loader: Any, context: dict[str, str]) -> _Opened:
    """Return the cluster and user entries that ``context`` names. The user is ``None`` if it names no user.

    Raises an exception in ``_LIBRARY_ERRORS`` if an entry is missing, or if the cluster has no valid server URL.
    """
    cluster = config["clusters"].get_with_name(context["cluster"])["cluster"]
    if not _is_server_url(str(cluster.safe_get("server"))):
        raise ConfigException(f"cluster {context['cluster']} has no valid server URL")
    name = context.get("user")
    return _Opened(loader, cluster, config["users"].get_with_name(name)["user"] if name else None)


def _is_server_url(url: str) -> bool:
    """Return whether the URL has the scheme http or https in lower case, a host, a valid port, and no white space.

    A URL without a port is valid; port 0 is not.
    """
    try:
        parts = urlsplit(url)
        is_http = url.startswith(("http://", "https://")) and not any(map(str.isspace, url))
        return is_http and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _uses_exec_plugin(user: ConfigNode | None) -> bool:
    """Return whether an exec plugin supplies the credentials. A token or an auth-provider takes precedence over it."""
    return user is not None and "exec" in user and not any(it in user for it in ("token", "tokenFile", "auth-provider"))


def _missing_files(opened: _Opened) -> Iterator[str]:
    """Yield an error for each missing certificate or key file that TLS needs and that inline data does not replace."""
    if not str(opened.cluster["server"]).startswith("https:"):
        return
    folder = Path(opened.cluster.path).absolute().parent
    named = [
        (opened.cluster, "certificate-authority"),
        (opened.user, "client-certificate"),
        (opened.user, "client-key"),
    ]
    for node, key in named:
        file = node.safe_get(key) if node is not None and f"{key}-data" not in node else None
        if file and not (folder / str(file)).is_file():
            yield f"{key}: there is no file {folder / str(file)}"


def _missing_plugin(opened: _Opened) -> Iterator[str]:
    if _uses_exec_plugin(opened.user) and _command(opened.user) is None:
        entry = opened.user["exec"]
        command, hint = entry["command"], entry.safe_get("installHint")
        where = (
            f"no executable file {_in_config_folder(opened.user, command)}"
            if os.sep in command
            else f"no {command} in PATH"
        )
        yield f"exec: there is {where}" + (f": {' '.join(hint.split())}" if hint else "")


def _command(user: ConfigNode) -> str | None:
    """Return the path of the exec plugin, or ``None`` if there is no such executable file.

    Like client-go, search PATH. A command with a slash is a path, relative to the kubeconfig's folder.
    """
    command = user["exec"]["command"]
    return shutil.which(_in_config_folder(user, command) if os.sep in command else command)


def _in_config_folder(user: ConfigNode, command: str) -> str:
    return str(Path(user.path).absolute().parent / command)


def _run_plugin(opened: _Opened) -> float:
    """Run the exec plugin and store its credentials in the user entry; return their expiry as a Unix time, or infinity.

    The library's own function for this is not used: it logs errors instead of raising them, and ignores the expiry of
    certificates.
    """
    user = opened.user
    folder = str(Path(user.path).absolute().parent)
    user["exec"].value["command"] = _command(user) or user["exec"]["command"]
    status = ExecProvider(user["exec"], folder, opened.cluster).run()
    token, certificate, key = (status.get(it) for it in ("token", "clientCertificateData", "clientKeyData"))
    if not token and not (certificate and key):
        raise ConfigException("exec: the plugin answered with neither a token nor a certificate and its key")
    if token:
        user.value["token"] = token
    if certificate and key:
        user.value["client-certificate-data"] = base64.b64encode(certificate.encode()).decode()
        user.value["client-key-data"] = base64.b64encode(key.encode()).decode()
    timestamp = status.get("expirationTimestamp")
    return float(parse_rfc3339(timestamp).timestamp()) if timestamp else inf


class _Target(SimpleNamespace):
    """Object to which the library writes the settings.

    The library's own Configuration is not used, because it reads proxies from environment variables.
    """

    def __init__(self) -> None:
        super().__init__(
            api_key={}, host="", ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True,
            tls_server_name=None, proxy=None,
        )  # fmt: skip

    def loaded(self, expires: float, reread: float) -> LoadedCredentials:
        files = (self.ssl_ca_cert, self.cert_file, self.key_file)
        contents = tuple(Path(file).read_bytes() for file in files if file)
        authorization = next(iter(self.api_key.values()), "")  # the only entry; release 37 of the library renamed it
        return LoadedCredentials(
            server=self.host.rstrip("/"),
            authorization=authorization.strip(),  # token files often end with a newline
            tls=Tls(files, contents, bool(self.verify_ssl)),
            tls_server_name=self.tls_server_name or "",
            proxy=self.proxy or "",
            expires=expires,
            reread=reread,
        )


@contextmanager
def credentials_errors(where: str) -> Iterator[None]:
    """Convert the exceptions in ``_LIBRARY_ERRORS`` to ``CredentialsError``. The message begins with ``where``."""
    try:
        yield
    except _LIBRARY_ERRORS as mistake:
        raise CredentialsError(f"{where}: {mistake}") from mistake
