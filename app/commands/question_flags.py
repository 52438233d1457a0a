"""Flags and help texts of the commands with questions about a cluster, for ``homeport`` and ``kubectl homeport``.

Flags such as ``-n``, ``-A``, ``-l`` and ``-o`` have the same names and meanings as in kubectl.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from app.commands.common_flags import (
    LINT_FORMATS,
    LIST_FORMATS,
    SERVER,
    TEXT_FORMATS,
    VERSION_FORMATS,
    add_all_namespaces,
    add_cluster,
    add_login,
    add_namespace,
    add_output,
    add_selector,
    add_source,
    add_watch,
)
from app.commands.what_if_flags import add_what_ifs

_HOMES: Final = """\
List and change homes. Without an action, homes are listed. move, release and keep write to the API server, like
kubectl annotate, with the permissions of your kubeconfig. OWNER is KIND/NAME, such as vm/db01, or KIND/NAME/ORDINAL if
each pod has its own home, such as sts/db/0.
"""

_HOMES_EPILOG: Final = """\
examples:
  {prog} homes -A -o wide                         all homes, with policies, times and pods
  {prog} homes -A --orphaned                      homes whose node or owner is gone
  {prog} homes move vm/db01 node-b3 -n machines   make node-b3 the home of db01
  {prog} homes release sts/db/0                   let pod 0 of StatefulSet db start anywhere

flags that select homes: {prog} homes list -h
"""

_EXPLAIN_EPILOG: Final = """\
examples:
  {prog} explain web-7d4b9c-x2x7k                 one pod
  {prog} explain deploy/web -n shop               all pods of a Deployment, equal ones together
  {prog} explain -l app=web --node node-b2        why not on node-b2

exit code: 0 if a node fits or the pod is bound, 1 if it waits, 2 for wrong usage, 3 if there is no answer
"""


def with_list(argv: list[str]) -> list[str]:
    """Return the arguments, with ``list`` inserted after ``homes`` if neither an action nor help is requested."""
    if argv[:1] != ["homes"] or argv[1:2] in (["-h"], ["--help"]) or (argv[1:] and not argv[1].startswith("-")):
        return argv
    return ["homes", "list", *argv[1:]]


def add_questions(commands: Any, prog: str) -> None:
    """Add all commands about a cluster, ``ui`` and ``lint`` included. ``prog``: name of the program in examples."""
    _add_explain(commands, prog)
    _add_pending(commands)
    _add_skew(commands)
    _add_homes(commands, prog)
    add_what_ifs(commands, prog)
    _add_report(commands)
    _add_ui(commands)
    _add_lint(commands, prog)


def _add_report(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="write the page with its data to one HTML file, for a ticket",
        description="Write one HTML file with the pages of the cluster, of pods that wait, of workloads above maxSkew, "
        "of nodes, and of lost zones. It needs no network. It shows names and labels of all namespaces.",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="file to write, HTML")
    add_source(parser)
    parser.set_defaults(run="report")


def _add_ui(commands: Any) -> None:
    parser = commands.add_parser(
        "ui",
        help="open the page of a running Homeport in a browser",
        description="Print the address of the page of a running Homeport, and open it in a browser. Without --server, "
        "the page comes through a port-forward of kubectl, until Ctrl-C.",
    )
    parser.add_argument("--server", metavar="URL", help=f"URL of Homeport's pages. Environment: {SERVER}.")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--homeport-namespace", metavar="NAME", default="", help="search Homeport only in this namespace"
    )
    add_login(parser)
    parser.set_defaults(run="ui")


def _add_explain(commands: Any, prog: str) -> None:
    parser = commands.add_parser(
        "explain",
        help="explain which nodes fit a pod, why the others do not, and what would open them",
        description="Judge a pod, or the pods of a workload, on all nodes with all rules, and print the reasons and "
        "the changes that would help.",
        epilog=_EXPLAIN_EPILOG.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target", nargs="?", metavar="POD", help="NAME, pod/NAME, KIND/NAME such as deploy/web, or NAMESPACE/NAME"
    )
    parser.add_argument("-l", "--selector", default="", help="explain all pods with these labels")
    parser.add_argument("--node", default="", help="also print the verdict and the score of each plugin on this node")
    add_namespace(parser, "namespace of the pod")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="with -l: pods in all namespaces")
    add_output(parser, TEXT_FORMATS)
    add_source(parser)
    parser.set_defaults(run="explain")


def _add_pending(commands: Any) -> None:
    parser = commands.add_parser(
        "pending",
        help="list the pods that wait for a node, longest first, each with the reason that matters most",
        description="List the pods that wait for a node, the longest wait first. The reason shown is that of the "
        "plugin without which the most nodes would fit.",
    )
    add_selector(parser, "pods with these labels")
    add_namespace(parser, "namespace of the pods")
    add_all_namespaces(parser, "pods")
    add_output(parser, LIST_FORMATS)
    add_watch(parser)
    add_source(parser)
    parser.set_defaults(run="pending")


def _add_skew(commands: Any) -> None:
    parser = commands.add_parser(
        "skew",
        help="list the pods of each domain for workloads with topology spread constraints",
        description="List the pods of each domain, the skew, and the skew that maxSkew allows, for each workload and "
        "constraint. The largest excess comes first. With a WORKLOAD, bars show its domains, where the constraint "
        "allows the next pod, and which pod a scale-down removes first.",
    )
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="KIND/NAME, such as deploy/web")
    parser.add_argument("--above", action="store_true", help="list only skews larger than maxSkew")
    add_selector(parser, "workloads whose pods have these labels")
    add_namespace(parser, "namespace of the workloads")
    add_all_namespaces(parser, "workloads")
    add_output(parser, LIST_FORMATS)
    add_source(parser)
    parser.set_defaults(run="skew")


def _add_homes(commands: Any, prog: str) -> None:
    parser = commands.add_parser(
        "homes",
        help="list, move, release and keep homes",
        description=_HOMES,
        epilog=_HOMES_EPILOG.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_list(actions)
    move = _add_change(actions, "move", "make another node the home")
    move.add_argument("node", metavar="NODE", help="the new home")
    move.add_argument("--force", action="store_true", help="do not check that the node exists")
    _add_change(actions, "release", "remove the home; the next bind creates a new one")
    _add_change(actions, "keep", "make the pod's current node its home")


def _add_list(actions: Any) -> None:
    parser = actions.add_parser("list", help="list homes, sorted by namespace, kind, name and ordinal")
    add_namespace(parser, "namespace of the owners")
    add_all_namespaces(parser, "homes")
    add_selector(parser, "homes whose pod has these labels")
    parser.add_argument("--node", default="", help="list only homes on this node")
    parser.add_argument(
        "--orphaned",
        action="store_true",
        help="list only homes whose owner is gone, or whose node is gone or is another machine of that name",
    )
    parser.add_argument("--away", action="store_true", help="list only homes whose node accepts no pods now")
    parser.add_argument("--contradictory", action="store_true", help="list only homes that contradict other settings")
    add_output(parser, LIST_FORMATS)
    add_watch(parser)
    add_source(parser)
    parser.set_defaults(run="homes list")


def _add_change(actions: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
    parser.add_argument("owner", metavar="OWNER", help="owner of the home: KIND/NAME, or KIND/NAME/ORDINAL")
    add_namespace(parser, "namespace of the owner")
    add_source(parser)
    parser.set_defaults(run=f"homes {name}")
    return parser


_LINT_EPILOG: Final = """\
examples:
  {prog} lint deploy/ web.yaml                    manifests in a folder and a file
  helm template chart | {prog} lint -             a rendered chart
  {prog} lint web.yaml --local                    a manifest, compared with the nodes of the cluster
  {prog} lint -A                                  all workloads of the cluster

A comment "# homeport.dev/ignore: ID" or an annotation homeport.dev/ignore ignores a rule for one object.

exit code: 0 without findings, 1 with findings, 2 for wrong usage, 3 if something could not be read
"""


def _add_lint(commands: Any, prog: str) -> None:
    parser = commands.add_parser(
        "lint",
        help="find mistakes in manifests and workloads that can be seen without scheduling",
        description="Check manifests, or without FILE the workloads of the cluster, for mistakes in topology spread, "
        "homes, schedulerName and configurations. Some rules need a cluster: for manifests give --local or --saved.",
        epilog=_LINT_EPILOG.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", metavar="FILE", help="manifest, folder, or - for standard input")
    add_namespace(parser, "namespace of the workloads, and of manifests without one")
    add_all_namespaces(parser, "findings")
    add_output(parser, LINT_FORMATS)
    add_cluster(parser)
    parser.set_defaults(run="lint")


def add_version(commands: Any) -> None:
    """Add the command that prints the version."""
    parser = commands.add_parser("version", help="print the version")
    add_output(parser, VERSION_FORMATS)
    parser.set_defaults(run="version")
