"""Flags that several commands have."""

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


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the cluster for a command that never uses a running Homeport."""
    cluster = parser.add_argument_group("the cluster")
    one = cluster.add_mutually_exclusive_group()
    one.add_argument("--saved", metavar="FILE", help="use this saved cluster (homeport dump)")
    one.add_argument("--local", action="store_true", help="list the cluster. This is the default without FILE.")
    add_login(cluster)


def add_login(group: Any) -> None:
    group.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig. Default: like kubectl.")
    group.add_argument("--context", metavar="NAME", default="", help="context of the kubeconfig")
    group.add_argument("--as", metavar="USER", dest="impersonated", default="", help="user to impersonate")
    group.add_argument("-q", "--quiet", action="store_true", help="do not print notes on standard error")


def add_selector(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--selector``. ``what``: the selected objects, as a phrase for the help text."""
    parser.add_argument("-l", "--selector", default="", help=f"list only {what}, in kubectl's format")


def add_namespace(parser: argparse.ArgumentParser, of: str) -> None:
    parser.add_argument("-n", "--namespace", help=f"{of}. Default: the context's namespace, else default.")


def add_all_namespaces(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help=f"list {what} in all namespaces")


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    parser.add_argument(
        "-o", "--output", choices=formats, default=formats[0], help="output format. Default: %(default)s."
    )
    if formats is LIST_FORMATS:
        parser.add_argument("--no-headers", action="store_true", help="print no column names")


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-w", "--watch", action="store_true", help="after the list, print what changes")


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the source of the answer, see ``app.commands.sources``."""
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
    source.add_argument(
        "--homeport-namespace", metavar="NAME", default="", help="search Homeport only in this namespace"
    )
    source.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig. Default: like kubectl.")
    source.add_argument("--context", metavar="NAME", default="", help="context of the kubeconfig")
    source.add_argument("--as", metavar="USER", dest="impersonated", default="", help="user to impersonate")
    source.add_argument("--certificate-authority", metavar="FILE", help="certificate authorities of --server, PEM")
    source.add_argument("--client-certificate", metavar="FILE", help="client certificate for --server, PEM")
    source.add_argument("--client-key", metavar="FILE", help="key of the client certificate, PEM")
    source.add_argument("-q", "--quiet", action="store_true", help="do not print the source on standard error")
