"""Who Homeport is to the API server: a kubeconfig or a pod's service account, read and kept fresh.

The ``kubernetes`` library reads them (docs/adr/0003-credentials-by-a-library.md): certificates, tokens, token files,
exec plugins. It blocks, so it runs in a thread. Here is only when to read again and what a request takes from it.
"""

# The library claims to be typed, but its configuration module is not.
# mypy: allow-untyped-calls

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

import structlog
import yaml
from cryptography import x509
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

_LOG: Final = structlog.get_logger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS: Final = 60.0
"""How old what was read from files may get; kubelet replaces a token when a fifth of its life is left."""

RENEW_AT: Final = 0.9
"""The part of its life after which a credential with an expiry is renewed."""

_NO_FILE: Final = "there is no such file"
_PLUGIN_SECONDS: Final = 60.0
_TRY_AGAIN_SECONDS: Final = 5.0
_SHORTEST_LIFE: Final = 1.0  # of what comes expired: a plugin must not run for each request
_MISTAKES: Final = (ConfigException, yaml.YAMLError, OSError, LookupError, TypeError, ValueError, AttributeError)
"""What the library raises for files that are missing, unreadable or not of the form it expects."""


class CredentialsError(Exception):
    """No credentials can be had. The message names the file, and the context and user as far as they are known."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one request needs. ``tls`` is the same object for as long as certificates do not change."""

    server: str
    authorization: str
    tls: ssl.SSLContext
    tls_server_name: str
    proxy: str


@dataclass(frozen=True, slots=True)
class _Tls:
    """Files by name and by content: kubelet, cert-manager and exec plugins replace them while we run."""

    files: tuple[str | None, ...]
    contents: tuple[bytes, ...]
    verify: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """What a source holds at this moment. ``expires`` is a Unix time; ``reread`` is in seconds from now.

    ``renews_certificate``: by itself, before it ends.
    """

    server: str
    authorization: str
    tls: _Tls
    tls_server_name: str
    proxy: str
    expires: float
    reread: float
    renews_certificate: bool = False


class Source(Protocol):
    """Where credentials are kept. Its string names it in errors."""

    def check(self) -> None:
        """Raise ``CredentialsError`` for mistakes that can be seen without running anything."""
        ...

    def read(self) -> _Found:
        """Read everything anew; blocks, may run a plugin. Raises ``CredentialsError``."""
        ...

    def namespace(self, *, required: bool) -> str:
        """The namespace that is meant where none is named; empty for none. Raises ``CredentialsError``.

        ``required``: the source has to be there.
        """
        ...


def load(kubeconfig: str | None = None, *, service_account: Path = SERVICE_ACCOUNT) -> Credentials:
    """Find credentials: the file given, ``$KUBECONFIG``, a pod's service account, ``~/.kube/config``, in this order.

    ``kubeconfig`` may be a list of files as in ``$KUBECONFIG``. Runs no plugin; that waits for the first request.
    Raises ``CredentialsError``.
    """
    source = _source(kubeconfig or os.environ.get("KUBECONFIG", ""), service_account)
    source.check()
    return Credentials(source)


def _source(kubeconfig: str, service_account: Path) -> Source:
    if kubeconfig:
        return Kubeconfig(kubeconfig)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").is_file():
        return ServiceAccount(service_account)
    return Kubeconfig("~/.kube/config")


def namespace_in_use(kubeconfig: str | None = None, *, service_account: Path = SERVICE_ACCOUNT) -> str:
    """The namespace that a person means who names none, as with kubectl: of the current context, or of the pod.

    Credentials are looked for where ``load`` looks; where there are none, or no namespace is told, it is ``default``.
    Reads the name alone, so cluster and user need not be there. Raises ``CredentialsError`` for a file that was asked
    for and is not there, and for what cannot be read.
    """
    source = _source(kubeconfig or os.environ.get("KUBECONFIG", ""), service_account)
    return source.namespace(required=bool(kubeconfig)) or "default"


class Credentials:
    """Credentials that stay fresh: read again each minute, before they expire, and when the API server refuses them."""

    def __init__(self, source: Source, *, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._now = now
        self._lock = asyncio.Lock()
        self._access: Access | None = None
        self._tls: _Tls | None = None
        self._read_at = -inf
        self._renew_at = -inf
        self._expires = -inf
        self._certificate_ends: float | None = None

    @property
    def certificate_ends(self) -> float | None:
        """When the client certificate in use ends, as a Unix time. ``None``: there is none, it renews itself (that of
        an exec plugin), or nothing was read yet.
        """
        return self._certificate_ends

    @property
    def server(self) -> str:
        """Where the API server is; who says so, until that has been read."""
        return str(self._source) if self._access is None else self._access.server

    async def access(self) -> Access:
        """What the next request uses; waits only when something has to be read. Raises ``CredentialsError``."""
        if self._access is None or self._now() >= self._renew_at:
            async with self._lock:
                if self._access is None or self._now() >= self._renew_at:
                    return await self._keep_fresh()
        return self._access

    async def renewed(self, rejected: Access) -> Access:
        """What to use after a 401, read once however many requests were refused. Raises ``CredentialsError``."""
        async with self._lock:
            too_soon = self._now() - self._read_at < _TRY_AGAIN_SECONDS
            if self._access is not None and (self._access is not rejected or too_soon):
                return self._access
            return await self._read()

    async def _keep_fresh(self) -> Access:
        """What was read last stays good until it expires, however its source fares."""
        try:
            return await self._read()
        except CredentialsError as error:
            if self._access is None or self._now() >= self._expires:
                raise
            self._renew_at = self._now() + _TRY_AGAIN_SECONDS
            _LOG.warning("credentials not renewed", cause=str(error))
            return self._access

    async def _read(self) -> Access:
        try:
            async with asyncio.timeout(_PLUGIN_SECONDS):
                found, context = await asyncio.to_thread(self._read_and_build)
        except TimeoutError:
            raise CredentialsError(f"{self._source}: no answer within {_PLUGIN_SECONDS:.0f} s") from None
        now = self._now()
        self._read_at, self._expires = now, found.expires
        life = RENEW_AT * (found.expires - now)
        self._renew_at = now + max(_SHORTEST_LIFE, min(found.reread, life))
        self._tls = found.tls
        self._certificate_ends = _certificate_ends(found)
        self._access = Access(found.server, found.authorization, context, found.tls_server_name, found.proxy)
        return self._access

    def _read_and_build(self) -> tuple[_Found, ssl.SSLContext]:
        found = self._source.read()
        if self._access is not None and self._tls == found.tls:
            return found, self._access.tls
        with _told(str(self._source)):
            return found, _context(found.tls)


class ServiceAccount:
    """The service account of the pod we run in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return f"service account {self._folder}"

    def check(self) -> None:
        self.read()

    def read(self) -> _Found:
        found = _Target()
        with _told(str(self)):
            token, authority = str(self._folder / "token"), str(self._folder / "ca.crt")
            InClusterConfigLoader(token_filename=token, cert_filename=authority).load_and_set(found)
            return found.taken(expires=inf, reread=REREAD_SECONDS)

    def namespace(self, *, required: bool) -> str:  # it is there: a pod was found by its token
        with _told(str(self)):
            file = self._folder / "namespace"
            return file.read_text().strip() if file.is_file() else ""


class Kubeconfig:
    """One or more kubeconfig files, joined as kubectl does, in their current context."""

    def __init__(self, files: str) -> None:
        self._files = files
        self._where = f"kubeconfig {files}"

    def __str__(self) -> str:
        return self._where

    def check(self) -> None:
        opened = self._open()
        with _told(self._where):
            missing = [*_missing_files(opened), *_missing_plugin(opened)]
            if missing:
                raise ConfigException("; ".join(missing))

    def read(self) -> _Found:
        opened, found = self._open(), _Target()
        with _told(self._where):
            runs_plugin = _is_by_plugin(opened.user)
            expires = _run_plugin(opened) if runs_plugin else inf
            opened.loader.load_and_set(found)
            return replace(found.taken(expires, inf if runs_plugin else REREAD_SECONDS), renews_certificate=runs_plugin)

    def namespace(self, *, required: bool) -> str:
        with _told(f"kubeconfig {self._files}"):
            config = KubeConfigMerger(self._files).config
            if config is None and required:
                raise ConfigException(_NO_FILE)
            current = None if config is None else config.safe_get("current-context")
            if not current:
                return ""
            said = config["contexts"].get_with_name(current)["context"].safe_get("namespace")
            return str(said or "")

    def _open(self) -> _Opened:
        self._where = f"kubeconfig {self._files}"
        with _told(self._where):
            merger = KubeConfigMerger(self._files)
            if merger.config is None:
                raise ConfigException(_NO_FILE)
            # An oidc user's rotated refresh token is written back, as kubectl does.
            loader = KubeConfigLoader(merger.config, config_base_path=None, config_persister=merger.save_changes)
            context = loader.current_context
        self._where += f", context {context['name']}, user {context['context'].get('user', '(none)')}"
        with _told(self._where):
            return _opened(merger.config, loader, context["context"])


@dataclass(frozen=True, slots=True)
class _Opened:
    loader: Any
    cluster: Any
    user: Any


def _opened(config: Any, loader: Any, context: dict[str, str]) -> _Opened:
    """The parts of a kubeconfig that the context names. A user that is named must exist; there may be none."""
    cluster = config["clusters"].get_with_name(context["cluster"])["cluster"]
    if not str(cluster.safe_get("server")).startswith(("http://", "https://")):
        raise ConfigException(f"cluster {context['cluster']} has no server, or one that is no URL")
    name = context.get("user")
    return _Opened(loader, cluster, config["users"].get_with_name(name)["user"] if name else None)


def _is_by_plugin(user: ConfigNode | None) -> bool:
    """Whether an exec plugin is to be run: a token or an auth-provider goes before it."""
    return user is not None and "exec" in user and not any(it in user for it in ("token", "tokenFile", "auth-provider"))


def _missing_files(opened: _Opened) -> Iterator[str]:
    """Certificates and keys that are named and not there. What is given as data goes before a file."""
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
    if _is_by_plugin(opened.user) and _command(opened.user) is None:
        asked = opened.user["exec"]
        command, hint = asked["command"], asked.safe_get("installHint")
        where = f"no executable file {_beside(opened.user, command)}" if os.sep in command else f"no {command} in PATH"
        yield f"exec: there is {where}" + (f": {' '.join(hint.split())}" if hint else "")


def _command(user: ConfigNode) -> str | None:
    """Where the plugin is, as client-go looks for it: in PATH, or from the folder of the kubeconfig."""
    command = user["exec"]["command"]
    return shutil.which(_beside(user, command) if os.sep in command else command)


def _beside(user: ConfigNode, command: str) -> str:
    return str(Path(user.path).absolute().parent / command)


def _run_plugin(opened: _Opened) -> float:
    """Run the exec plugin and put its answer in the user's place; returns the Unix time at which it expires.

    The library's loader would run it too, but only logs what goes wrong, and drops the expiry of certificates.
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
    """Stands where the library expects its client's Configuration, which would read proxies from the environment."""

    def __init__(self) -> None:
        super().__init__(
            api_key={}, host="", ssl_ca_cert=None, cert_file=None, key_file=None, verify_ssl=True,
            tls_server_name=None, proxy=None,
        )  # fmt: skip

    def taken(self, expires: float, reread: float) -> _Found:
        files = (self.ssl_ca_cert, self.cert_file, self.key_file)
        contents = tuple(Path(file).read_bytes() for file in files if file)
        authorization = next(iter(self.api_key.values()), "")  # its one entry was renamed in release 37
        return _Found(
            server=self.host.rstrip("/"),
            authorization=authorization.strip(),  # token files often end in a newline
            tls=_Tls(files, contents, bool(self.verify_ssl)),
            tls_server_name=self.tls_server_name or "",
            proxy=self.proxy or "",
            expires=expires,
            reread=reread,
        )


def _certificate_ends(found: _Found) -> float | None:
    """Of the first certificate, which is the client's own; others are of who issued it."""
    authority, certificate, _ = found.tls.files
    if not certificate or found.renews_certificate:
        return None
    try:
        own = x509.load_pem_x509_certificate(found.tls.contents[1 if authority else 0])
    except ValueError:  # OpenSSL takes more than this reader does
        return None
    return own.not_valid_after_utc.timestamp()


def _context(tls: _Tls) -> ssl.SSLContext:
    authority, certificate, key = tls.files
    context = ssl.create_default_context(cafile=authority)
    # Python 3.13 turns this on; cluster authorities often lack the key identifiers it asks for, and Go does not ask.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Turn the library's many exceptions into one that says where."""
    try:
        yield
    except _MISTAKES as mistake:
        raise CredentialsError(f"{where}: {mistake}") from mistake
