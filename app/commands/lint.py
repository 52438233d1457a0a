"""``homeport lint``: finds mistakes in manifests, and in the workloads of a live or saved cluster."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from app.cache.cluster import Cluster
from app.commands.output import BAD, coloured
from app.commands.progress import ProgressLine
from app.commands.service import CommandError, UsageError
from app.commands.sources import check_not_empty, login_of
from app.feeds.listing import ListingError, list_live
from app.feeds.saved import load_saved
from app.kube.kinds import NAMESPACES, Kind
from app.kube.names import is_label, shown
from app.lint.facts import FACTS, ClusterFacts
from app.lint.files import read_paths
from app.lint.formats import formatted, printable
from app.lint.linting import Linter, LintReport
from app.lint.live import CONFIG_MAPS, WORKLOADS, configurations_of, workloads_in
from app.lint.manifests import BrokenManifest
from app.lint.rules import Severity
from app.lint.workloads import CORE
from app.runtime.registry import Registry
from app.verbs.similar import similar

FINDINGS: Final = 1
INCOMPLETE: Final = 3
"""Exit codes, see ``run``."""

_YELLOW: Final = "33"


def run(arguments: argparse.Namespace, registry: Registry, *, version: str) -> int:
    """Print the findings. Return the exit code.

    The code is 3 if a manifest or an object could not be read, or if a path has none, even with findings. Else it is 1
    with findings, and 0 without.

    ``registry``: all plugins. Raises ``CommandError``, ``CredentialsError``, ``SavedClusterError`` and ``UsageError``.
    """
    check_not_empty(arguments, "saved")
    manifests, notes = read_paths(arguments.paths)
    namespace = _namespace(arguments)
    denied: list[str] = []
    cluster = _cluster(arguments, denied) if arguments.saved or arguments.local or not arguments.paths else None
    notes += (f"not linted, because you have no permission to list {it}: configurations in ConfigMaps" for it in denied)
    linter = Linter(registry, None if cluster is None else ClusterFacts(cluster), namespace)
    linter.add_broken(manifests.broken)
    linter.add_manifests(manifests.objects)
    if cluster is not None:
        linter.add_broken(_left_out(cluster, arguments.saved or "the cluster"))
        if not arguments.paths:
            within = "" if arguments.all_namespaces else namespace
            _require_namespace(cluster, within)
            held = configurations_of(cluster, within, arguments.saved or "the cluster", arguments.saved or "")
            linter.add_broken(held.broken)
            linter.add_manifests(held.objects)
            linter.add_workloads(workloads_in(cluster, within), arguments.saved or "")
    report = linter.report()
    text = formatted(report, arguments.output, version, _paint)
    if text:
        print(text)  # noqa: T201  # the answer of the command
    for line in (*map(str, report.broken), *(() if arguments.quiet else _remarks(report, notes))):
        print(f"homeport: {printable(line)}", file=sys.stderr)  # noqa: T201  # for the person at the terminal
    if report.broken:
        return INCOMPLETE
    return FINDINGS if report.findings else 0


def _require_namespace(cluster: Cluster, name: str) -> None:
    """Raise ``CommandError`` if the cluster has no such namespace.

    Nothing is raised for an empty name, which stands for all namespaces, or if no Namespaces were read.
    """
    every = {it for _, it in cluster.others.keys(NAMESPACES)} | {*cluster.namespaces()}
    if name and cluster.count_of(NAMESPACES) and name not in every:
        raise CommandError(f'namespaces "{name}" not found{similar(name, sorted(every))}')


def _paint(text: str, severity: Severity) -> str:
    return coloured(text, BAD if severity is Severity.ERROR else _YELLOW)


def _remarks(report: LintReport, notes: list[str]) -> Iterator[str]:
    yield from notes
    yield from map(str, report.notes)
    needs: dict[str, list[str]] = {}
    for rule in report.skipped:
        needs.setdefault(rule.need.value, []).append(rule.id)
    for need, ids in needs.items():
        yield f"skipped without {need}: {', '.join(ids)}"
    ignored = f", {report.ignored} ignored" if report.ignored else ""
    yield f"objects: {report.objects}, findings: {len(report.findings)}{ignored}"


def _namespace(arguments: argparse.Namespace) -> str:
    """Return the namespace given by ``-n``. Default: empty for manifests and ``-A``, else the context's namespace.

    Raises ``UsageError`` if it is invalid, and ``CredentialsError``.
    """
    namespace: str | None = arguments.namespace
    if namespace is None:
        namespace = "" if arguments.paths or arguments.all_namespaces else login_of(arguments).namespace()
    if namespace and not is_label(namespace):
        raise UsageError(f"{shown(namespace)} cannot be the name of a namespace")
    return namespace


def _cluster(arguments: argparse.Namespace, denied: list[str]) -> Cluster:
    """Load the saved cluster or list the live one.

    ``denied``: list to which the resource name of ConfigMaps is added if the user is not allowed to list them. Raises
    ``SavedClusterError``, ``CommandError`` and ``CredentialsError``.
    """
    cluster = Cluster(CORE)
    kinds = (*FACTS, *WORKLOADS)
    optional: dict[Kind[Any], list[str]] = {} if arguments.paths else {CONFIG_MAPS: denied, NAMESPACES: []}
    if arguments.saved:
        load_saved(Path(arguments.saved), cluster, (), optional=(*kinds, *optional))
        return cluster
    progress = ProgressLine(quiet=arguments.quiet)

    def show(kind: Kind[Any], count: int) -> None:
        progress.show(f"listing the cluster: {count:,} objects ({kind.kind})")

    try:
        asyncio.run(list_live(login_of(arguments), cluster, kinds, show, optional))
    except ListingError as error:
        raise CommandError(str(error)) from error
    finally:
        progress.clear()
    return cluster


def _left_out(cluster: Cluster, source: str) -> Iterator[BrokenManifest]:
    """Yield the objects of the cluster that cannot be decoded."""
    for kind, causes in cluster.unreadable.items():
        for (namespace, name), cause in causes.items():
            yield BrokenManifest(source, 0, f"{kind.kind} {'/'.join(filter(None, (namespace, name)))}: {cause}")
