"""Parser of the command line: all commands with their flags and help texts."""

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
"""Flags of ``serve``, each of which sets one setting."""

_EPILOG: Final = """\
Every setting except the profiles has a flag. All settings can be set by environment variables HOMEPORT_<NAME> (lists
and mappings as JSON), and in the file given with --config. Flags take precedence over variables, and variables over
the file. Profiles are best written in the file:

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

_WHERE: Final = "kubeconfig whose current context sets the default namespace"
"""Help text of ``--kubeconfig`` for commands that use it only for the default namespace."""

_HOMES: Final = """\
List and change homes of a running Homeport. Without an action, homes are listed. move, release and keep write to the
API server, like kubectl annotate, with the permissions of your kubeconfig. OWNER is KIND/NAME, such as vm/db01, or
KIND/NAME/ORDINAL if each pod has its own home, such as sts/db/0.
"""

_HOMES_EPILOG: Final = """\
examples:
  homeport homes -A -o wide                                  all homes, with policies, times and pods
  homeport homes -A --orphaned                               homes whose node or owner is gone
  homeport homes move vm/db01 node-b3 -n machines            make node-b3 the home of db01
  homeport homes release sts/db/0                            let pod 0 of StatefulSet db start anywhere
  homeport homes drain node-b2 --dry-run                     homes on node-b2, and where their pods would go

flags that select homes: homeport homes list -h
"""


def with_list(argv: list[str]) -> list[str]:
    """Return ``argv``; for ``homes`` without an action, with the action ``list`` inserted."""
    if argv[:1] != ["homes"] or argv[1:2] in (["-h"], ["--help"]) or (argv[1:] and not argv[1].startswith("-")):
        return argv
    return ["homes", "list", *argv[1:]]


def parser() -> argparse.ArgumentParser:
    """Create the parser. The attribute ``run`` of its result is the command's name, for example ``homes move``."""
    top = argparse.ArgumentParser(
        prog="homeport",
        description="A Kubernetes scheduler extender that spreads replicas and returns machines to their home nodes.",
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
        "Pages for operators are under /api/v1 and /docs; probes and metrics at /livez, /readyz and /metrics.",
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
        help="evaluate saved cases, one JSON object per line",
        description="Read cases, one JSON object per line: a cluster, a pending pod and a profile. Write the "
        "verdicts of the profile's plugins on every node, one line per case, in the same order. An invalid case "
        "gives an error line.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="file with the cases. Default: standard input.")
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
        help="explain which nodes fit a pod, why the others do not, and what would open them",
        description="Request from a running Homeport why nodes fit a pod or not, and print the answer as tables.",
    )
    parser.add_argument("pod", metavar="POD", help="the pod: NAME, pod/NAME or NAMESPACE/NAME")
    parser.add_argument("--node", default="", help="also print the verdict and the score of each plugin on this node")
    _add_namespace(parser, "namespace of the pod", _WHERE)
    _add_server(parser)
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="output format. Default: text."
    )
    parser.set_defaults(run="explain")


def _add_server(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--saved", metavar="FILE", help="read this saved cluster (homeport dump) instead of a running Homeport"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML) with the profiles for --saved")
    source.add_argument("--server", metavar="URL", help=f"URL of Homeport's pages. Default: {', then '.join(SERVERS)}.")
    parser.add_argument("--certificate-authority", metavar="FILE", help="certificate authorities of the server, PEM")
    parser.add_argument(
        "--client-certificate", metavar="FILE", help="client certificate of a reader, PEM; it can contain the key"
    )
    parser.add_argument("--client-key", metavar="FILE", help="key of the client certificate, PEM")


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
    move.add_argument("--force", action="store_true", help="do not check that the node exists")
    _add_change(actions, "release", "remove the home; the next first bind creates one")
    _add_change(actions, "keep", "make the pod's current node its home")
    _add_drain(actions)


def _add_list(actions: Any) -> None:
    parser = actions.add_parser("list", help="list homes, sorted by namespace, kind, name and ordinal")
    _add_namespace(parser, "namespace of the owners", _WHERE)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="list homes in all namespaces")
    parser.add_argument("--node", default="", help="list only homes on this node")
    parser.add_argument(
        "--orphaned",
        action="store_true",
        help="list only homes whose node is gone or another machine, or whose owner is gone",
    )
    parser.add_argument("--away", action="store_true", help="list only homes whose node accepts no pods now")
    parser.add_argument("--contradictory", action="store_true", help="list only homes that contradict other settings")
    _add_homes_output(parser)
    _add_server(parser)
    parser.set_defaults(run="homes list")


def _add_namespace(parser: argparse.ArgumentParser, of: str, purpose: str) -> None:
    """Add the flags ``--namespace`` and ``--kubeconfig``, which work like kubectl's flags.

    ``of``: beginning of the help text of ``--namespace``. ``purpose``: beginning of that of ``--kubeconfig``.
    """
    default = "Default: from the kubeconfig's current context, or of the pod that runs this command, else default."
    parser.add_argument("-n", "--namespace", help=f"{of}. {default}")
    sources = "Default: $KUBECONFIG, a pod's service account, ~/.kube/config."
    parser.add_argument("--kubeconfig", metavar="FILE", help=f"{purpose}. {sources}")


def _add_change(actions: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
    parser.add_argument("owner", metavar="OWNER", help="owner of the home: KIND/NAME, or KIND/NAME/ORDINAL")
    _add_namespace(parser, "namespace of the owner", "kubeconfig with your credentials and default namespace")
    _add_server(parser)
    parser.set_defaults(run=f"homes {name}")
    return parser


def _add_drain(actions: Any) -> None:
    parser = actions.add_parser(
        "drain",
        help="list homes on a node, where their pods would go, and which pods would wait",
        description="Show where the pods that run on a node or have their home there would go, and which would wait. "
        "Homeport evicts no pods.",
    )
    parser.add_argument("node", metavar="NODE", help="node to be drained")
    parser.add_argument(
        "--dry-run", action="store_true", required=True, help="only show the plan; kubectl drain executes it"
    )
    _add_homes_output(parser)
    _add_server(parser)
    parser.set_defaults(run="homes drain")


def _add_homes_output(parser: argparse.ArgumentParser) -> None:
    choices = ("table", "wide", "json", "yaml", "name")
    parser.add_argument("-o", "--output", choices=choices, default="table", help="output format. Default: table.")


def _add_dump(commands: Any) -> None:
    parser = commands.add_parser(
        "dump",
        help="save a live cluster to a file",
        description="Write the objects of a live cluster to a file for --saved and serve --cluster. It contains only "
        "the fields that Homeport decodes: no Secrets, env, commands, user data or managedFields. The file has mode "
        "0600 and is replaced only after all objects are written.",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="file to write, JSON")
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    _add_flag(parser, next(it for it in FLAGS if it.name == "kubeconfig"))
    parser.set_defaults(run="dump")


def _add_rbac(commands: Any) -> None:
    parser = commands.add_parser(
        "rbac",
        help="print the minimal role for a configuration, and its bindings",
        description="Print the permissions that a configuration needs, each rule with its reason, for "
        "kubectl apply. Works without a cluster; unknown kinds are looked up if an API server can be reached.",
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    _add_flag(parser, next(it for it in FLAGS if it.name == "kubeconfig"))
    parser.add_argument(
        "-n", "--namespace", default="kube-system", help="namespace of the service account. Default: %(default)s."
    )
    parser.add_argument(
        "--service-account",
        metavar="NAME",
        default="homeport",
        help="service account; the roles have the same name. Default: %(default)s.",
    )
    parser.add_argument(
        "--user", metavar="NAME", default="", help="bind the roles to this user instead of a service account"
    )
    parser.add_argument(
        "-o", "--output", choices=("yaml", "json"), default="yaml", help="output format. Default: yaml."
    )
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
