"""The command line. The only room that sees both ``app`` and ``plugins``."""

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
"""Names of the kind, as kubectl knows them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 2 for wrong arguments, settings, profiles or plugins, 1 for a failure.

    A command whose output is a pipe that nobody reads ends by SIGPIPE, as others do, and prints nothing more.
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
    """Write what is left of the output."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _end_by_sigpipe()


def _end_by_sigpipe() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)


def _has_no_reader(pipe: int) -> bool:
    """Return true if the reading end of a pipe is closed."""
    poll = select.poll()
    poll.register(pipe, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _complain(error: Exception) -> None:
    for line in str(error).splitlines():
        print(f"homeport: {line}", file=sys.stderr)  # noqa: T201  # for the person at the terminal


def _specs() -> tuple[PluginSpec[Any], ...]:
    """Our own plugins and those of installed distributions, through the same door."""
    return (*SHIPPED, *plugins.installed())


def _serve(arguments: argparse.Namespace) -> None:
    given = given_by(FLAGS, {name.replace("_", "-"): value for name, value in vars(arguments).items()})
    found = read_settings(given, config=arguments.config or os.environ.get(CONFIG))
    specs = _specs()
    _raise_for(found, _deeper_mistakes(found, specs))
    configure(found.settings.log_level, found.settings.log_format)
    if found.sources.variables.links:
        _LOG.info("service links ignored", variables=found.sources.variables.links)
    try:
        serve(found.settings, specs, DEFAULT_WEIGHTS, version=version("homeport"))
    except ProfileErrors as error:
        raise SettingsError("\n".join(map(found.sources.sentence, error.mistakes))) from error


def _raise_for(found: LoadedSettings, deeper: Iterable[str]) -> None:
    """Raise ``SettingsError`` with all mistakes, if there are any."""
    sentences = [*map(found.sources.sentence, found.mistakes), *deeper]
    if sentences:
        raise SettingsError("\n".join(sentences))


def _profile_mistakes(found: LoadedSettings, specs: Sequence[PluginSpec[Any]]) -> Iterator[str]:
    """Sentences for what is wrong in profiles beside their form: their plugins and the arguments of these."""
    try:
        resolve(found.settings.profiles, Registry(specs, DEFAULT_WEIGHTS))
    except ProfileErrors as error:
        yield from found.further(error.mistakes)


def _deeper_mistakes(found: LoadedSettings, specs: Sequence[PluginSpec[Any]]) -> Iterator[str]:
    """Sentences for what the parts of the service would refuse one after the other when they are put together."""
    yield from _profile_mistakes(found, specs)
    if all(map(found.is_sound, _CERTIFICATES)):
        try:
            certificates_of(found.settings)
        except CertificateError as mistake:
            yield found.sources.sentence(Mistake((("tlsCertFile",),), str(mistake)))
    if found.is_sound("tracing") and found.settings.tracing.endpoint is not None and not is_available():
        said = f"needs OpenTelemetry's SDK and exporter: {EXTRA}"
        yield found.sources.sentence(Mistake((("tracing", "endpoint"),), said))
    if found.settings.cluster is None and found.is_sound("cluster") and found.is_sound("kubeconfig"):
        try:
            load(found.settings.kubeconfig)
        except CredentialsError as mistakes:
            places = ((("kubeconfig",),)) if found.settings.kubeconfig is not None else ()
            yield found.sources.sentence(Mistake(places, str(mistakes)))


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
    """The one that was asked for, or the one that kubectl would take. Raises ``CommandError``."""
    found: str | None = arguments.namespace
    if found is None:
        found = namespace_in_use(arguments.kubeconfig)
    if not is_label(found):
        raise service.CommandError(f"{shown(found)} cannot be the name of a namespace")
    return found


def _list_homes(arguments: argparse.Namespace) -> None:
    asked = homes.HomeSelection(
        "" if arguments.all_namespaces else _namespace(arguments),
        arguments.node,
        orphaned=arguments.orphaned,
        away=arguments.away,
        contradictory=arguments.contradictory,
    )
    found = homes.listing(_server(arguments), asked, arguments.output)
    if found:
        print(found)  # noqa: T201  # the answer of the command
    elif arguments.output != "name":
        where = f"in namespace {asked.namespace} (-A: in all)" if asked.namespace else "anywhere"
        what = "no such homes" if asked.narrows else "no homes"
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
    answer = explain.run(server, namespace, name, as_json=arguments.output == "json")
    print(answer)  # noqa: T201  # the answer of the command


def _pod(arguments: argparse.Namespace) -> tuple[str, str]:
    """Namespace and name of the pod: POD is NAME, pod/NAME as kubectl has it, or NAMESPACE/NAME."""
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
    """Settings and plugins of a command that does not serve. Raises ``SettingsError``."""
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
"""Commands by the name that their arguments have."""


if __name__ == "__main__":
    sys.exit(main())
