"""Flags and help texts of the commands that ask about a cluster, for ``homeport`` and ``kubectl homeport``.

The flags have the names and meanings of kubectl's.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

SERVER: Final = "HOMEPORT_SERVER"
"""Environment variable with the default of ``--server``."""

LIST_FORMATS: Final = ("table", "wide", "json", "yaml", "name")
VERSION_FORMATS: Final = ("text", "json", "yaml")
LINT_FORMATS: Final = ("text", "json", "sarif", "github")
TEXT_FORMATS: Final = ("text", "wide", "json", "yaml", "name")

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
    """Return the arguments with ``list`` inserted after ``homes`` if no action is given; others unchanged."""
    if argv[:1] != ["homes"] or argv[1:2] in (["-h"], ["--help"]) or (argv[1:] and not argv[1].startswith("-")):
        return argv
    return ["homes", "list", *argv[1:]]


def add_questions(commands: Any, prog: str) -> None:
    """Add all commands that ask about a cluster. ``prog``: how the user calls the program."""
    _add_explain(commands, prog)
    _add_pending(commands)
    _add_skew(commands)
    _add_homes(commands, prog)
    _add_drain(commands, prog)
    _add_simulate(commands, prog)
    _add_lose(commands, prog)
    _add_lint(commands, prog)


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
    _add_namespace(parser, "namespace of the pod")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="with -l: pods in all namespaces")
    _add_output(parser, TEXT_FORMATS)
    _add_source(parser)
    parser.set_defaults(run="explain")


def _add_pending(commands: Any) -> None:
    parser = commands.add_parser(
        "pending",
        help="list the pods that wait for a node, longest first, each with the reason that matters most",
        description="List the pods that wait for a node, the longest wait first. The reason shown is that of the "
        "plugin without which the most nodes would fit.",
    )
    _add_selector(parser, "pods with these labels")
    _add_namespace(parser, "namespace of the pods")
    _add_all_namespaces(parser, "pods")
    _add_output(parser, LIST_FORMATS)
    _add_watch(parser)
    _add_source(parser)
    parser.set_defaults(run="pending")


def _add_skew(commands: Any) -> None:
    parser = commands.add_parser(
        "skew",
        help="list the pods of each domain for workloads with topology spread constraints",
        description="List the pods of each domain, the skew, and the skew that maxSkew allows, for each workload and "
        "constraint. The largest excess comes first. With a WORKLOAD, bars show its domains, where the next pod goes, "
        "and which pod a scale-down removes first.",
    )
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="KIND/NAME, such as deploy/web")
    parser.add_argument("--above", action="store_true", help="list only skews larger than maxSkew")
    _add_selector(parser, "workloads whose pods have these labels")
    _add_namespace(parser, "namespace of the workloads")
    _add_all_namespaces(parser, "workloads")
    _add_output(parser, LIST_FORMATS)
    _add_source(parser)
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
    _add_namespace(parser, "namespace of the owners")
    _add_all_namespaces(parser, "homes")
    parser.add_argument("--node", default="", help="list only homes on this node")
    parser.add_argument(
        "--orphaned",
        action="store_true",
        help="list only homes whose owner is gone, or whose node is gone or is another machine of that name",
    )
    parser.add_argument("--away", action="store_true", help="list only homes whose node accepts no pods now")
    parser.add_argument("--contradictory", action="store_true", help="list only homes that contradict other settings")
    _add_output(parser, LIST_FORMATS)
    _add_watch(parser)
    _add_source(parser)
    parser.set_defaults(run="homes list")


def _add_change(actions: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
    parser.add_argument("owner", metavar="OWNER", help="owner of the home: KIND/NAME, or KIND/NAME/ORDINAL")
    _add_namespace(parser, "namespace of the owner")
    _add_source(parser)
    parser.set_defaults(run=f"homes {name}")
    return parser


_DRAIN_EPILOG: Final = """\
examples:
  {prog} drain node-b2                            where the pods of a node would go, and which would wait
  {prog} drain node-b2 node-b3 node-b4            a rolling upgrade: each node is uncordoned before the next is drained
  {prog} drain node-b2 node-b3 --keep-cordoned    like kubectl drain: both are cordoned first

exit code: 0 if all pods would be placed, 1 if one would wait or a budget blocks, 2 for wrong usage, 3 if there is no
answer or no such node
"""


def _add_drain(commands: Any, prog: str) -> None:
    parser = commands.add_parser(
        "drain",
        help="show where the pods of nodes would go, which would wait, and which budgets block",
        description="Drain nodes one after the other on a copy of the cluster: evict their pods in waves, as the "
        "budgets allow, and place new pods by whole scheduling cycles. Homeport evicts no pods.",
        epilog=_DRAIN_EPILOG.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("nodes", nargs="+", metavar="NODE", help="node to be drained")
    parser.add_argument("--keep-cordoned", action="store_true", help="cordon all nodes first, and uncordon none")
    parser.add_argument("--dry-run", action="store_true", help="accepted for kubectl's sake: it is always a dry run")
    _add_output(parser, LIST_FORMATS)
    _add_source(parser)
    parser.set_defaults(run="drain")


_SIMULATE_EPILOG: Final = """\
examples:
  {prog} simulate web.yaml                        where the pods of a manifest would go
  helm template chart | {prog} simulate -         a rendered chart
  {prog} simulate scale deploy/web=12 -n shop     a workload with 12 replicas
  {prog} simulate big.yaml --preempt              also evict pods of lower priority

exit code: 0 if all pods would be placed, 1 if one would wait, 2 for wrong usage or manifests, 3 if there is no answer
"""


def _add_simulate(commands: Any, prog: str) -> None:
    parser = commands.add_parser(
        "simulate",
        help="show where the pods of manifests, or of a scaled workload, would go",
        description="Place the pods one after the other by whole scheduling cycles on a copy of the cluster, and print "
        "the nodes, the pods that would wait, and the spread before and after. Nothing is written to the cluster.",
        epilog=_SIMULATE_EPILOG.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "given", nargs="*", metavar="FILE", help="manifest, folder, - for standard input, or scale KIND/NAME=REPLICAS"
    )
    parser.add_argument("-f", "--filename", dest="files", action="append", default=[], help="like FILE")
    parser.add_argument("--preempt", action="store_true", help="evict the victims of preemption in the simulation")
    _add_namespace(parser, "namespace of objects without one, and of the workload")
    _add_output(parser, TEXT_FORMATS)
    _add_source(parser)
    parser.set_defaults(run="simulate")


_LOSE_EPILOG: Final = """\
examples:
  {prog} lose topology.kubernetes.io/zone=eu-1c   who would be lost with this zone, placed again, and wait
  {prog} lose topology.kubernetes.io/zone         all zones, the worst first

exit code: 0 if all pods would be placed again, 1 if one would wait, 2 for wrong usage, 3 if there is no answer
"""


def _add_lose(commands: Any, prog: str) -> None:
    parser = commands.add_parser(
        "lose",
        help="show what the loss of a zone, or of other nodes with a label, would do to each workload",
        description="Lose all nodes with a label on a copy of the cluster, and place their pods again. The three "
        "variants stand side by side, because topology spread treats them differently. Nothing is written to the "
        "cluster.",
        epilog=_LOSE_EPILOG.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("label", metavar="KEY[=VALUE]", help="label of the lost nodes; without a value: all values")
    _add_output(parser, TEXT_FORMATS)
    _add_source(parser)
    parser.set_defaults(run="lose")


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
    _add_namespace(parser, "namespace of the workloads, and of manifests without one")
    _add_all_namespaces(parser, "findings")
    _add_output(parser, LINT_FORMATS)
    _add_cluster(parser)
    parser.set_defaults(run="lint")


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the cluster that this process lists."""
    cluster = parser.add_argument_group("the cluster")
    one = cluster.add_mutually_exclusive_group()
    one.add_argument("--saved", metavar="FILE", help="use this saved cluster (homeport dump)")
    one.add_argument("--local", action="store_true", help="list the cluster. This is the default without FILE.")
    _add_login(cluster)


def _add_login(group: Any) -> None:
    group.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig. Default: like kubectl.")
    group.add_argument("--context", metavar="NAME", default="", help="context of the kubeconfig")
    group.add_argument("--as", metavar="USER", dest="impersonated", default="", help="user to impersonate")
    group.add_argument("-q", "--quiet", action="store_true", help="do not print notes on standard error")


def _add_selector(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-l", "--selector", default="", help=f"list only {what}, in kubectl's format")


def _add_namespace(parser: argparse.ArgumentParser, of: str) -> None:
    parser.add_argument("-n", "--namespace", help=f"{of}. Default: the context's namespace, else default.")


def _add_all_namespaces(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help=f"list {what} in all namespaces")


def add_version(commands: Any) -> None:
    """Add the command that prints the version."""
    parser = commands.add_parser("version", help="print the version")
    _add_output(parser, VERSION_FORMATS)
    parser.set_defaults(run="version")


def _add_output(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    parser.add_argument(
        "-o", "--output", choices=formats, default=formats[0], help="output format. Default: %(default)s."
    )
    if formats is LIST_FORMATS:
        parser.add_argument("--no-headers", action="store_true", help="print no column names")


def _add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-w", "--watch", action="store_true", help="after the list, print what changes")


def _add_source(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the answer comes from."""
    source = parser.add_argument_group(
        "where the answer comes from",
        "Without --server or --saved: the Homeport that runs in the cluster, through the API server or a port-forward. "
        "If there is none, this process lists the cluster and judges itself. Nothing is installed.",
    )
    one = source.add_mutually_exclusive_group()
    one.add_argument("--server", metavar="URL", help=f"URL of Homeport's pages. Environment: {SERVER}.")
    one.add_argument("--saved", metavar="FILE", help="judge this saved cluster (homeport dump)")
    one.add_argument("--local", action="store_true", help="list the cluster and judge in this process")
    source.add_argument("--config", metavar="FILE", help="configuration file with the profiles, if this process judges")
    source.add_argument("--homeport-namespace", metavar="NAME", default="", help="search Homeport only there")
    source.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig. Default: like kubectl.")
    source.add_argument("--context", metavar="NAME", default="", help="context of the kubeconfig")
    source.add_argument("--as", metavar="USER", dest="impersonated", default="", help="user to impersonate")
    source.add_argument("--certificate-authority", metavar="FILE", help="certificate authorities of --server, PEM")
    source.add_argument("--client-certificate", metavar="FILE", help="client certificate for --server, PEM")
    source.add_argument("--client-key", metavar="FILE", help="key of the client certificate, PEM")
    source.add_argument(
        "-q", "--quiet", action="store_true", help="do not print on standard error where the answer comes from"
    )
