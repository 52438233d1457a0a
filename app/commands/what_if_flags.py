"""Flags and help texts of the what-ifs: drain, simulate, lose and rebalance."""

from __future__ import annotations

import argparse
from typing import Any, Final

from app.commands.common_flags import (
    LIST_FORMATS,
    TEXT_FORMATS,
    add_all_namespaces,
    add_namespace,
    add_output,
    add_source,
)


def add_what_ifs(commands: Any, prog: str) -> None:
    """Add all what-ifs. ``prog``: name of the program in examples."""
    _add_drain(commands, prog)
    _add_simulate(commands, prog)
    _add_lose(commands, prog)
    _add_rebalance(commands, prog)


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
    parser.add_argument("--dry-run", action="store_true", help="no effect: it is always a dry run")
    add_output(parser, LIST_FORMATS)
    add_source(parser)
    parser.set_defaults(run="drain")


_SIMULATE_EPILOG: Final = """\
examples:
  {prog} simulate web.yaml                        where the pods of a manifest would go
  helm template chart | {prog} simulate -         a rendered chart
  {prog} simulate scale deploy/web=12 -n shop     a workload with 12 replicas
  {prog} simulate scale deploy/web=3 -f web.yaml  the same for a workload without pods
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
    add_namespace(parser, "namespace of objects without one, and of the workload")
    add_output(parser, TEXT_FORMATS)
    add_source(parser)
    parser.set_defaults(run="simulate")


_LOSE_EPILOG: Final = """\
examples:
  {prog} lose topology.kubernetes.io/zone=eu-1c   pods that would be lost with this zone, placed again, or wait
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
    add_output(parser, TEXT_FORMATS)
    add_source(parser)
    parser.set_defaults(run="lose")


_REBALANCE_EPILOG: Final = """\
examples:
  {prog} rebalance -A                             all workloads above maxSkew
  {prog} rebalance deploy/web -n shop --most 3    one workload, with at most three evictions
  {prog} rebalance -n shop --soft                 ScheduleAnyway too

exit code: 0 if all constraints hold or would hold, 1 if one stays above maxSkew, 2 for wrong usage, 3 if there is no
answer
"""
_MOST_EVICTIONS: Final = 20


def _add_rebalance(commands: Any, prog: str) -> None:
    parser = commands.add_parser(
        "rebalance",
        help="print few evictions after which topology spread constraints hold again",
        description="Choose few evictions after which hard topology spread constraints hold again, on a copy of the "
        "cluster, and print them as calls of the Eviction API for you to run. Homeport evicts no pods.",
        epilog=_REBALANCE_EPILOG.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="KIND/NAME, such as deploy/web")
    parser.add_argument(
        "--most",
        type=int,
        default=_MOST_EVICTIONS,
        metavar="NUMBER",
        help="maximum number of evictions, up to 1000. Default: %(default)s.",
    )
    parser.add_argument("--soft", action="store_true", help="improve ScheduleAnyway constraints too")
    add_namespace(parser, "namespace of the workloads")
    add_all_namespaces(parser, "workloads")
    add_output(parser, TEXT_FORMATS)
    add_source(parser)
    parser.set_defaults(run="rebalance")
