"""Command line of Homeport. Only this module imports both ``app`` and ``plugins``."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import structlog

from app.commands import drain, dump, evaluate, explain, homes, plugins, rbac, saved, service
from app.commands.arguments import FLAGS, parser, with_list
from app.config.flags import given_by
from app.config.loading import LoadedSettings, SettingsError, read_settings
from app.config.mistakes import Mistake
from app.config.variables import CONFIG
from app.feeds.saved import SavedClusterError
from app.framework.spec import PluginSpec
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import load, namespace_in_use
from app.kube.names import is_label, shown
from app.main import serve
from app.runtime.profiles import ProfileErrors
from app.runtime.registry import DuplicatePlugin, Registry
from app.runtime.resolving import resolve
from app.server.tls import CertificateError
from app.telemetry.logging import configure
from app.telemetry.standard_error import guard_standard_error
from app.telemetry.tracing import EXTRA, is_available
from app.wiring import certificates_of
from plugins import DEFAULT_WEIGHTS, SHIPPED

_LOG: Final = structlog.get_logger(__name__)
FAILED: Final = 1
USAGE_ERROR: Final = 2
_MISTAKES: Final = (
    SettingsError,
    ProfileErrors,
    SavedClusterError,
    CredentialsError,
    CertificateError,
    plugins.PluginLoadError,
    DuplicatePlugin,
)
_CERTIFICATES: Final = ("tls_cert_file", "tls_private_key_file", "client_ca_file", "leader_election")

_PODS: Final = ("pod", "pods", "po")
"""Names that kubectl accepts for the kind Pod."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    The exit code is 0 after success, 1 after a failure, and 2 for invalid arguments, settings, profiles or plugins. If
    standard output is a pipe without a reader, the process ends by SIGPIPE, like other Unix commands.
    """
    guard_standard_error()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    finally:
        _flush()


def _run(argv: list[str]) -> int:
    arguments = parser().parse_args(with_list(argv))
    try:
        _RUNS[arguments.run](arguments)
    except _MISTAKES as mistake:
        _complain(mistake)
        return USAGE_ERROR
    except BrokenPipeError as failure:
        if _has_no_reader(sys.stdout.fileno()):
            _end_by_sigpipe()
        _complain(failure)
        return FAILED
    except (service.CommandError, OSError) as failure:
        _complain(failure)
        return FAILED
    return 0


def _flush() -> None:
    """Flush standard output; end the process by SIGPIPE if it is a pipe without a reader."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _end_by_sigpipe()


def _end_by_sigpipe() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)


def _has_no_reader(pipe: int) -> bool:
    """Return true if the file descriptor is a pipe whose reading end is closed."""
    poll = select.poll()
    poll.register(pipe, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _complain(error: Exception) -> None:
    for line in str(error).splitlines():
        print(f"homeport: {line}", file=sys.stderr)  # noqa: T201  # for the person at the terminal


def _specs() -> tuple[PluginSpec[Any], ...]:
    """Return the plugins that Homeport ships, and those of other installed distributions."""
    return (*SHIPPED, *plugins.installed())


def _serve(arguments: argparse.Namespace) -> None:
    given = given_by(FLAGS, {name.replace("_", "-"): value for name, value in vars(arguments).items()})
    loaded = read_settings(given, config=arguments.config or os.environ.get(CONFIG))
    specs = _specs()
    _raise_for(loaded, _deeper_mistakes(loaded, specs))
    configure(loaded.settings.log_level, loaded.settings.log_format)
    if loaded.sources.variables.links:
        _LOG.info("service links ignored", variables=loaded.sources.variables.links)
    try:
        serve(loaded.settings, specs, DEFAULT_WEIGHTS, version=version("homeport"))
    except ProfileErrors as error:
        raise SettingsError("\n".join(map(loaded.sources.sentence, error.mistakes))) from error


def _raise_for(loaded: LoadedSettings, deeper: Iterable[str]) -> None:
    """Raise ``SettingsError`` if ``loaded`` has mistakes or ``deeper`` has messages about further mistakes."""
    sentences = [*map(loaded.sources.sentence, loaded.mistakes), *deeper]
    if sentences:
        raise SettingsError("\n".join(sentences))


def _profile_mistakes(loaded: LoadedSettings, specs: Sequence[PluginSpec[Any]]) -> Iterator[str]:
    """Yield a message for each mistake in the profiles that is found only when the profiles are resolved.

    Examples are unknown plugin names and invalid plugin arguments.
    """
    try:
        resolve(loaded.settings.profiles, Registry(specs, DEFAULT_WEIGHTS))
    except ProfileErrors as error:
        yield from loaded.further(error.mistakes)


def _deeper_mistakes(loaded: LoadedSettings, specs: Sequence[PluginSpec[Any]]) -> Iterator[str]:
    """Yield a message for each mistake that the validation of single settings does not find.

    Such mistakes are in profiles, certificates, tracing or the kubeconfig. All are collected here, because the service
    would stop at the first one.
    """
    yield from _profile_mistakes(loaded, specs)
    if all(map(loaded.is_sound, _CERTIFICATES)):
        try:
            certificates_of(loaded.settings)
        except CertificateError as mistake:
            yield loaded.sources.sentence(Mistake((("tlsCertFile",),), str(mistake)))
    if loaded.is_sound("tracing") and loaded.settings.tracing.endpoint is not None and not is_available():
        said = f"needs OpenTelemetry's SDK and exporter: {EXTRA}"
        yield loaded.sources.sentence(Mistake((("tracing", "endpoint"),), said))
    if loaded.settings.cluster is None and loaded.is_sound("cluster") and loaded.is_sound("kubeconfig"):
        try:
            load(loaded.settings.kubeconfig)
        except CredentialsError as mistakes:
            places = ((("kubeconfig",),)) if loaded.settings.kubeconfig is not None else ()
            yield loaded.sources.sentence(Mistake(places, str(mistakes)))


def _evaluate(arguments: argparse.Namespace) -> None:
    configure("warning", "json")
    evaluate.run(arguments.file, _specs(), arguments.release)


def _server(arguments: argparse.Namespace) -> service.Pages:
    if arguments.saved is not None:
        configure("warning", "console")
        loaded, specs = _configured(arguments.config, None)
        path = Path(arguments.saved)
        return saved.SavedCluster(loaded.settings, specs, DEFAULT_WEIGHTS, path, version=version("homeport"))
    if arguments.config is not None:
        raise service.CommandError("--config is for --saved: a running Homeport has its own configuration")
    return service.Server(
        service.SERVERS if arguments.server is None else (arguments.server,),
        arguments.certificate_authority,
        arguments.client_certificate,
        arguments.client_key,
    )


def _namespace(arguments: argparse.Namespace) -> str:
    """Return the namespace given by ``--namespace``, else kubectl's default. Raises ``CommandError`` if invalid."""
    namespace: str | None = arguments.namespace
    if namespace is None:
        namespace = namespace_in_use(arguments.kubeconfig)
    if not is_label(namespace):
        raise service.CommandError(f"{shown(namespace)} cannot be the name of a namespace")
    return namespace


def _list_homes(arguments: argparse.Namespace) -> None:
    selection = homes.HomeSelection(
        "" if arguments.all_namespaces else _namespace(arguments),
        arguments.node,
        orphaned=arguments.orphaned,
        away=arguments.away,
        contradictory=arguments.contradictory,
    )
    text = homes.listing(_server(arguments), selection, arguments.output)
    if text:
        print(text)  # noqa: T201  # the answer of the command
    elif arguments.output != "name":
        where = f"in namespace {selection.namespace} (-A: in all)" if selection.namespace else "anywhere"
        what = "no such homes" if selection.narrows else "no homes"
        print(f"homeport: {what} {where}", file=sys.stderr)  # noqa: T201  # for the person at the terminal


def _move_home(arguments: argparse.Namespace) -> None:
    server = _server(arguments)
    owner = homes.owner_of(server, _namespace(arguments), arguments.owner)
    answer = homes.move(server, arguments.kubeconfig, owner, arguments.node, force=arguments.force)
    print(answer)  # noqa: T201  # the answer of the command


def _release_home(arguments: argparse.Namespace) -> None:
    server = _server(arguments)
    owner = homes.owner_of(server, _namespace(arguments), arguments.owner)
    print(homes.release(server, arguments.kubeconfig, owner))  # noqa: T201  # the answer of the command


def _keep_home(arguments: argparse.Namespace) -> None:
    server = _server(arguments)
    owner = homes.owner_of(server, _namespace(arguments), arguments.owner)
    print(homes.keep(server, arguments.kubeconfig, owner))  # noqa: T201  # the answer of the command


def _drain(arguments: argparse.Namespace) -> None:
    text, node_exists = drain.plan(_server(arguments), arguments.node, arguments.output)
    print(text)  # noqa: T201  # the answer of the command
    if not node_exists:
        raise service.CommandError(f"there is no node {shown(arguments.node)}")


def _explain(arguments: argparse.Namespace) -> None:
    server = _server(arguments)
    namespace, name = _pod(arguments)
    answer = explain.run(server, namespace, name, node=arguments.node, as_json=arguments.output == "json")
    print(answer)  # noqa: T201  # the answer of the command


def _pod(arguments: argparse.Namespace) -> tuple[str, str]:
    """Return namespace and name of the pod that the argument POD names.

    POD is NAME, pod/NAME like in kubectl, or NAMESPACE/NAME. Raises ``CommandError`` if it contradicts ``--namespace``.
    """
    first, slash, name = arguments.pod.rpartition("/")
    if not slash or first in _PODS:
        return _namespace(arguments), name
    if arguments.namespace not in (None, first):
        raise service.CommandError(f"{shown(arguments.pod)} is in another namespace than -n {arguments.namespace}")
    arguments.namespace = first
    return _namespace(arguments), name


def _plugins(_arguments: argparse.Namespace) -> None:
    print(plugins.listing(SHIPPED, plugins.installed(), DEFAULT_WEIGHTS))  # noqa: T201  # the answer of the command


def _configured(config: str | None, kubeconfig: str | None) -> tuple[LoadedSettings, tuple[PluginSpec[Any], ...]]:
    """Load settings and plugins for a command other than ``serve``. Raises ``SettingsError`` for mistakes in them."""
    loaded, specs = read_settings(rbac.given(kubeconfig), config=config or os.environ.get(CONFIG)), _specs()
    _raise_for(loaded, _profile_mistakes(loaded, specs))
    return loaded, specs


def _dump(arguments: argparse.Namespace) -> None:
    configure("warning", "console")
    loaded, specs = _configured(arguments.config, arguments.kubeconfig)
    print(dump.run(loaded.settings, specs, DEFAULT_WEIGHTS, Path(arguments.output)))  # noqa: T201  # the answer


def _rbac(arguments: argparse.Namespace) -> None:
    configure("warning", "console")
    account = rbac.Account(arguments.namespace, arguments.service_account, arguments.user)
    loaded, specs = _configured(arguments.config, arguments.kubeconfig)
    print(rbac.run(loaded.settings, specs, DEFAULT_WEIGHTS, account, arguments.output), end="")  # noqa: T201  # the answer


def _version(_arguments: argparse.Namespace) -> None:
    print(version("homeport"))  # noqa: T201  # the answer of the command


_RUNS: Final[Mapping[str, Callable[[argparse.Namespace], None]]] = {
    "serve": _serve,
    "evaluate": _evaluate,
    "explain": _explain,
    "plugins": _plugins,
    "version": _version,
    "homes list": _list_homes,
    "homes move": _move_home,
    "homes release": _release_home,
    "homes keep": _keep_home,
    "homes drain": _drain,
    "dump": _dump,
    "rbac": _rbac,
}
"""Function of each command, by the command's name, which ``commands.arguments.parser`` stores as ``run``."""


if __name__ == "__main__":
    sys.exit(main())
