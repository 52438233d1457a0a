"""Command-line arguments: each command with its flags and help texts."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from typing import Any, Final

from app.commands.service import SERVERS
from app.config.flags import Flag, flags_of
from app.config.mistakes import default_at, written
from app.config.profile import RELEASES
from app.config.settings import Settings
from app.framework.handle import DEFAULT_RELEASE

FLAGS: Final = tuple(flags_of(Settings))
"""Settings that the command line can set."""

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

_WHERE: Final = "whose current context names the namespace"

_HOMES: Final = """\
List and change homes of a running Homeport. Without an action, homes are listed. move, release and keep write to the
API server, like kubectl annotate, with the permissions of your kubeconfig. OWNER is KIND/NAME, as vm/db01, or
KIND/NAME/ORDINAL where each pod has a home of its own, as sts/db/0.
"""

_HOMES_EPILOG: Final = """\
examples:
  homeport homes -A -o wide                                  all homes, with policies, times and pods
  homeport homes -A --orphaned                               homes whose node, or whose owner, is gone
  homeport homes move vm/db01 node-b3 -n machines            make node-b3 the home of db01
  homeport homes release sts/db/0                            let pod 0 of StatefulSet db start anywhere
  homeport homes drain node-b2 --dry-run                     homes on node-b2, and where their pods would go

selecting homes: homeport homes list -h
"""


def with_list(argv: list[str]) -> list[str]:
    """Insert ``list`` into ``homeport homes`` without an action."""
    if argv[:1] != ["homes"] or argv[1:2] in (["-h"], ["--help"]) or (argv[1:] and not argv[1].startswith("-")):
        return argv
    return ["homes", "list", *argv[1:]]


def parser() -> argparse.ArgumentParser:
    """Create the parser. It sets ``run`` to the name of the command, such as ``homes move``."""
    top = argparse.ArgumentParser(
        prog="homeport", description="A Kubernetes scheduler extender: replicas spread, machines come home."
    )
    top.add_argument("--version", action="version", version=version("homeport"), help="print the version and exit")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_evaluate(commands)
    _add_explain(commands)
    _add_homes(commands)
    _add_dump(commands)
    _add_rbac(commands)
    listing = commands.add_parser("plugins", help="list the plugins that a profile can name, and the presets")
    listing.set_defaults(run="plugins")
    commands.add_parser("version", help="print the version").set_defaults(run="version")
    return top


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
    for flag in FLAGS:
        _add_flag(parser, flag)
    parser.set_defaults(run="serve")


def _add_evaluate(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="evaluate saved cases, a JSON object per line",
        description="Read cases (a cluster, a pending pod, a profile), a JSON object a line, and write what the "
        "profile's plugins say about every node, a line each in the same order. A bad case gives an error line.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="read cases from here; default: standard input")
    parser.add_argument(
        "--release",
        choices=RELEASES,
        default=DEFAULT_RELEASE,
        help="Kubernetes release of the in-tree plugins, for cases without one. Default: %(default)s.",
    )
    parser.set_defaults(run="evaluate")


def _add_explain(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="explain which nodes fit a pod, and what would unblock it",
        description="Ask a running Homeport about a pod that it knows, and print its answer as tables.",
    )
    parser.add_argument("pod", metavar="POD", help="NAME, pod/NAME or NAMESPACE/NAME")
    _add_namespace(parser, "of the pod", _WHERE)
    _add_server(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="Default: text.")
    parser.set_defaults(run="explain")


def _add_server(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--saved", metavar="FILE", help="read this saved cluster (homeport dump) instead of asking a running Homeport"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML) with profiles for --saved")
    source.add_argument(
        "--server", metavar="URL", help=f"where its pages are served. Default: {', else '.join(SERVERS)}."
    )
    parser.add_argument("--certificate-authority", metavar="FILE", help="authorities of the server's certificate, PEM")
    parser.add_argument(
        "--client-certificate", metavar="FILE", help="certificate of a reader, PEM, with or without its key"
    )
    parser.add_argument("--client-key", metavar="FILE", help="its key, PEM")


def _add_homes(commands: Any) -> None:
    parser = commands.add_parser(
        "homes",
        help="list, move, release and keep homes; plan a drain",
        description=_HOMES,
        epilog=_HOMES_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_list(actions)
    move = _add_change(actions, "move", "make another node the home")
    move.add_argument("node", metavar="NODE", help="the new home")
    move.add_argument(
        "--force", action="store_true", help="even if the node does not exist, or you are not allowed to get it"
    )
    _add_change(actions, "release", "remove the home; the next first bind creates one")
    _add_change(actions, "keep", "make the pod's current node its home")
    _add_drain(actions)


def _add_list(actions: Any) -> None:
    parser = actions.add_parser("list", help="homes, by namespace, kind, name and ordinal")
    _add_namespace(parser, "of the owners", _WHERE)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    parser.add_argument("--node", default="", help="homes on this node")
    parser.add_argument(
        "--orphaned", action="store_true", help="homes whose node is gone or another machine, or whose owner is gone"
    )
    parser.add_argument("--away", action="store_true", help="homes whose node accepts no pods now")
    parser.add_argument("--contradictory", action="store_true", help="homes that contradict other settings")
    _add_homes_output(parser)
    _add_server(parser)
    parser.set_defaults(run="homes list")


def _add_namespace(parser: argparse.ArgumentParser, of: str, purpose: str) -> None:
    """Add ``--namespace`` and ``--kubeconfig``, as in kubectl. ``purpose``: what the kubeconfig is used for."""
    default = "Default: that of the kubeconfig's current context, or of the pod this runs in, else default."
    parser.add_argument("-n", "--namespace", help=f"{of}. {default}")
    sources = "Default: $KUBECONFIG, a pod's service account, ~/.kube/config."
    parser.add_argument("--kubeconfig", metavar="FILE", help=f"{purpose}. {sources}")


def _add_change(actions: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
    parser.add_argument("owner", metavar="OWNER", help="KIND/NAME, or KIND/NAME/ORDINAL")
    _add_namespace(parser, "of the owner", "your credentials and namespace")
    _add_server(parser)
    parser.set_defaults(run=f"homes {name}")
    return parser


def _add_drain(actions: Any) -> None:
    parser = actions.add_parser(
        "drain",
        help="homes on a node, where each pod would go, and which would wait",
        description="Show where pods that have their home on a node, or run there, would go, and which would wait. "
        "Homeport evicts no pods.",
    )
    parser.add_argument("node", metavar="NODE")
    parser.add_argument(
        "--dry-run", action="store_true", required=True, help="only show the plan; kubectl drain executes it"
    )
    _add_homes_output(parser)
    _add_server(parser)
    parser.set_defaults(run="homes drain")


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
    _add_flag(parser, next(it for it in FLAGS if it.name == "kubeconfig"))
    parser.set_defaults(run="dump")


def _add_rbac(commands: Any) -> None:
    parser = commands.add_parser(
        "rbac",
        help="print the minimal role for a configuration, and its bindings",
        description="Print the permissions that a configuration needs, each rule with its reason, for "
        "kubectl apply. No cluster is needed; kinds that are not known are looked up in one if it can be reached.",
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    _add_flag(parser, next(it for it in FLAGS if it.name == "kubeconfig"))
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
    parser.set_defaults(run="rbac")


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
