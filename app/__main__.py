"""The command line. The only room that sees both ``app`` and ``plugins``."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import structlog

from app.commands import drain, dump, evaluate, explain, homes, plugins, rbac, saved, service
from app.config.flags import Flag, flags_of, given_by
from app.config.loading import Loaded, SettingsError, read_settings
from app.config.mistakes import Mistake, default_at, written
from app.config.profile import RELEASES
from app.config.settings import Settings
from app.config.variables import CONFIG
from app.feeds.saved import SavedClusterError
from app.framework.handle import DEFAULT_RELEASE
from app.framework.spec import PluginSpec
from app.kube.credentials import CredentialsError, load, namespace_in_use
from app.kube.names import is_label, shown
from app.main import serve
from app.runtime.profiles import ProfileErrors, resolve
from app.runtime.registry import DuplicatePlugin, Registry
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
_FLAGS: Final = tuple(flags_of(Settings))

_EPILOG: Final = """\
every setting but the profiles can come from the command line. All can come from the environment as
HOMEPORT_<NAME> (lists and mappings as JSON), and from the file given with --config. Flags go before variables,
these before the file. Profiles are best kept in the file:

  apiVersion: homeport.dev/v1alpha1
  kind: HomeportConfiguration
  httpTimeout: 5s
  profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        enabled: [{name: PodTopologySpread, weight: 2}]

examples:
  homeport serve --cluster examples/sample-cluster.yaml      a saved cluster, no API server needed
  homeport serve --kubeconfig ~/.kube/config --port 8888     a live cluster
  homeport serve --config homeport.yaml                      in a pod, with its service account
"""


_PODS: Final = ("pod", "pods", "po")
"""Names of the kind, as kubectl knows them."""

_WHERE: Final = "whose current context names the namespace"

_HOMES: Final = """\
Ask a running Homeport who lives where. Without an action, homes are listed. move, release and keep write to the API
server what kubectl annotate would, with the rights of your kubeconfig. OWNER is KIND/NAME, as vm/db01, or
KIND/NAME/ORDINAL where each pod has a home of its own, as sts/db/0.
"""

_HOMES_EPILOG: Final = """\
examples:
  homeport homes -A -o wide                                  all homes, with policies, times and pods
  homeport homes -A --orphaned                               those whose node, or whose owner, is gone
  homeport homes move vm/db01 node-b3 -n machines            db01 lives on node-b3 from now on
  homeport homes release sts/db/0                            pod 0 of StatefulSet db may start anywhere
  homeport homes drain node-b2 --dry-run                     who lives there, and what would become of them

what narrows a list: homeport homes list -h
"""


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
    arguments = _parser().parse_args(_with_list(argv))
    run: Callable[[argparse.Namespace], None] = arguments.run
    try:
        run(arguments)
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


def _with_list(argv: list[str]) -> list[str]:
    """``homeport homes`` alone, or with flags, lists."""
    if argv[:1] != ["homes"] or argv[1:2] in (["-h"], ["--help"]) or (argv[1:] and not argv[1].startswith("-")):
        return argv
    return ["homes", "list", *argv[1:]]


def _complain(error: Exception) -> None:
    for line in str(error).splitlines():
        print(f"homeport: {line}", file=sys.stderr)  # noqa: T201  # for the person at the terminal


def _specs() -> tuple[PluginSpec[Any], ...]:
    """Our own plugins and those of installed distributions, through the same door."""
    return (*SHIPPED, *plugins.installed())


def _serve(arguments: argparse.Namespace) -> None:
    given = given_by(_FLAGS, {name.replace("_", "-"): value for name, value in vars(arguments).items()})
    found = read_settings(given, config=arguments.config or os.environ.get(CONFIG))
    specs = _specs()
    _raise_for(found, _deeper_mistakes(found, specs))
    configure(found.settings.log_level, found.settings.log_format)
    if found.sources.variables.links:
        _LOG.info("service links ignored", variables=found.sources.variables.links)
    try:
        serve(found.settings, specs, DEFAULT_WEIGHTS, version=version("homeport"))
    except ProfileErrors as mistakes:
        raise SettingsError("\n".join(map(found.sources.sentence, mistakes.found))) from mistakes


def _raise_for(found: Loaded, deeper: Iterable[str]) -> None:
    """Raise ``SettingsError`` with all mistakes, if there are any."""
    sentences = [*map(found.sources.sentence, found.mistakes), *deeper]
    if sentences:
        raise SettingsError("\n".join(sentences))


def _profile_mistakes(found: Loaded, specs: Sequence[PluginSpec[Any]]) -> Iterator[str]:
    """Sentences for what is wrong in profiles beside their form: their plugins and the arguments of these."""
    try:
        resolve(found.settings.profiles, Registry(specs, DEFAULT_WEIGHTS))
    except ProfileErrors as mistakes:
        yield from found.further(mistakes.found)


def _deeper_mistakes(found: Loaded, specs: Sequence[PluginSpec[Any]]) -> Iterator[str]:
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
    asked = homes.Asked(
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


def _configured(config: str | None, kubeconfig: str | None) -> tuple[Loaded, tuple[PluginSpec[Any], ...]]:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="homeport", description="A Kubernetes scheduler extender: replicas spread, machines come home."
    )
    parser.add_argument("--version", action="version", version=version("homeport"), help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_evaluate(commands)
    _add_explain(commands)
    _add_homes(commands)
    _add_dump(commands)
    _add_rbac(commands)
    listing = commands.add_parser("plugins", help="list the plugins that a profile can name, and the presets")
    listing.set_defaults(run=_plugins)
    commands.add_parser("version", help="print the version").set_defaults(run=_version)
    return parser


def _add_serve(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="answer filter, prioritize, preempt and bind over HTTP",
        description="Answer kube-scheduler's extender calls: POST /filter, /prioritize, /preempt, /bind. "
        "Operator pages are under /api/v1 and /docs, health at /livez, /readyz and /metrics.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    for flag in _FLAGS:
        _add_flag(parser, flag)
    parser.set_defaults(run=_serve)


def _add_evaluate(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="judge saved cases, a JSON object a line",
        description="Read cases (a cluster, a pending pod, a profile), a JSON object a line, and write what the "
        "profile's plugins say about every node, a line each in the same order. A bad case gives an error line.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="read cases from here; default: standard input")
    parser.add_argument(
        "--release",
        choices=RELEASES,
        default=DEFAULT_RELEASE,
        help="the Kubernetes release whose in-tree plugins are meant, where a case does not say. Default: %(default)s.",
    )
    parser.set_defaults(run=_evaluate)


def _add_explain(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="why may a pod go where, and what would unblock it?",
        description="Ask a running Homeport about a pod that it knows, and print its answer as tables.",
    )
    parser.add_argument("pod", metavar="POD", help="NAME, pod/NAME or NAMESPACE/NAME")
    _add_namespace(parser, "of the pod", _WHERE)
    _add_server(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="Default: text.")
    parser.set_defaults(run=_explain)


def _add_server(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--saved", metavar="FILE", help="read this saved cluster (homeport dump) instead of asking a running Homeport"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML) whose profiles judge --saved")
    source.add_argument(
        "--server", metavar="URL", help=f"where its pages are served. Default: {', else '.join(service.SERVERS)}."
    )
    parser.add_argument("--certificate-authority", metavar="FILE", help="authorities of the server's certificate, PEM")
    parser.add_argument(
        "--client-certificate", metavar="FILE", help="certificate of a reader, PEM, with its key or not"
    )
    parser.add_argument("--client-key", metavar="FILE", help="its key, PEM")


def _add_homes(commands: Any) -> None:
    parser = commands.add_parser(
        "homes",
        help="who lives where; move, release and keep homes; what a drain would mean",
        description=_HOMES,
        epilog=_HOMES_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_list(actions)
    move = _add_change(actions, "move", _move_home, "another node is the home from now on")
    move.add_argument("node", metavar="NODE", help="the new home")
    move.add_argument("--force", action="store_true", help="also if there is no such node, or you may not ask for it")
    _add_change(actions, "release", _release_home, "there is no home from now on; the next first bind makes one")
    _add_change(actions, "keep", _keep_home, "the node on which the pod is now is the home from now on")
    _add_drain(actions)


def _add_list(actions: Any) -> None:
    parser = actions.add_parser("list", help="homes, by namespace, kind, name and ordinal")
    _add_namespace(parser, "of the owners", _WHERE)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    parser.add_argument("--node", default="", help="homes on this node")
    parser.add_argument(
        "--orphaned", action="store_true", help="homes whose node is gone or another machine, or whose owner is gone"
    )
    parser.add_argument("--away", action="store_true", help="homes whose node takes no pods now")
    parser.add_argument("--contradictory", action="store_true", help="homes with something else that says otherwise")
    _add_homes_output(parser)
    _add_server(parser)
    parser.set_defaults(run=_list_homes)


def _add_namespace(parser: argparse.ArgumentParser, of: str, told: str) -> None:
    """As kubectl has it. ``told``: what the kubeconfig is for."""
    default = "Default: that of the kubeconfig's current context, or of the pod this runs in, else default."
    parser.add_argument("-n", "--namespace", help=f"{of}. {default}")
    sources = "Default: $KUBECONFIG, a pod's service account, ~/.kube/config."
    parser.add_argument("--kubeconfig", metavar="FILE", help=f"{told}. {sources}")


def _add_change(
    actions: Any, name: str, run: Callable[[argparse.Namespace], None], told: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=told, description=f"{told.capitalize()}.")
    parser.add_argument("owner", metavar="OWNER", help="KIND/NAME, or KIND/NAME/ORDINAL")
    _add_namespace(parser, "of the owner", "who you are, and where")
    _add_server(parser)
    parser.set_defaults(run=run)
    return parser


def _add_drain(actions: Any) -> None:
    parser = actions.add_parser(
        "drain",
        help="who lives on a node, where each would go, who would wait",
        description="Tell where those who live or run on a node would go, beside one another, and who would wait for "
        "what. Homeport evicts nobody.",
    )
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--dry-run", action="store_true", required=True, help="tell alone; kubectl drain does it")
    _add_homes_output(parser)
    _add_server(parser)
    parser.set_defaults(run=_drain)


def _add_homes_output(parser: argparse.ArgumentParser) -> None:
    choices = ("table", "wide", "json", "yaml", "name")
    parser.add_argument("-o", "--output", choices=choices, default="table", help="Default: table.")


def _add_dump(commands: Any) -> None:
    parser = commands.add_parser(
        "dump",
        help="save a live cluster to a file",
        description="Write the objects of a live cluster to a file that --saved and serve --cluster read: the kinds "
        "that are served, and of each object the fields that Homeport decodes. It holds no Secrets, env, commands, "
        "user data or managedFields. The file has mode 0600 and is replaced only once all of it is written.",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write, JSON")
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    _add_flag(parser, next(it for it in _FLAGS if it.name == "kubeconfig"))
    parser.set_defaults(run=_dump)


def _add_rbac(commands: Any) -> None:
    parser = commands.add_parser(
        "rbac",
        help="print the least role for a configuration, and its bindings",
        description="Print what Homeport must be allowed under a configuration, each rule with its reason, for "
        "kubectl apply. No cluster is needed; kinds that are not known are looked up in one if it can be reached.",
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    _add_flag(parser, next(it for it in _FLAGS if it.name == "kubeconfig"))
    parser.add_argument(
        "-n", "--namespace", default="kube-system", help="of the service account. Default: %(default)s."
    )
    parser.add_argument(
        "--service-account", metavar="NAME", default="homeport", help="Also names the roles. Default: %(default)s."
    )
    parser.add_argument(
        "--user", metavar="NAME", default="", help="bind the roles to this user instead, as of a kubeconfig"
    )
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="Default: yaml.")
    parser.set_defaults(run=_rbac)


def _add_flag(parser: argparse.ArgumentParser, flag: Flag) -> None:
    default = (default_at(Settings, flag.place) or "").strip('"')
    variable = f"HOMEPORT_{flag.setting.upper()}" + (f'={{"{flag.place[1]}": …}}' if len(flag.place) > 1 else "")
    described = flag.info.description or f"{written(flag.place)} of the file."
    text = f"{described}{f' Default: {default}.' if default else ''} Environment: {variable}.".replace("%", "%%")
    metavar = flag.name.rpartition("-")[2].upper()
    if flag.switches:
        parser.add_argument(f"--{flag.name}", nargs="?", const="true", metavar="true|false", help=text)
    else:
        parser.add_argument(f"--{flag.name}", metavar=metavar, help=text)


if __name__ == "__main__":
    sys.exit(main())
