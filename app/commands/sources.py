"""Chooses the source of a command's answer: a URL, a file, the Homeport in the cluster, or this process."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from app.commands.cluster_pages import ClusterConnection, PortForward, by_port_forward, by_service
from app.commands.common_flags import SERVER
from app.commands.progress import ProgressLine
from app.commands.service import WHERE, CommandError, PageNotServed, Pages, Server, UsageError, check_status
from app.config.variables import CONFIG
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import Login

NOTHING_RUNS: Final = "no Homeport runs there: homeport report writes the page to a file without one"

OfFile = Callable[[str], Pages]
"""Function that returns the pages about the saved cluster in a file."""

OfCluster = Callable[[Login, ProgressLine], Pages]
"""Function that lists the cluster of a login, and returns the pages about it."""


def login_of(arguments: argparse.Namespace) -> Login:
    return Login(arguments.kubeconfig, arguments.context, arguments.impersonated)


def source_of(
    arguments: argparse.Namespace, of_file: OfFile, of_cluster: OfCluster, *, nearby: Sequence[str] = ()
) -> Pages:
    """Choose the source that answers the command, and name it on standard error.

    The order is: ``--server``, ``--saved``, ``HOMEPORT_SERVER``, a Homeport at one of the URLs ``nearby``, the operator
    Service through the API server, a port-forward to a pod, this process. With ``--local`` or ``--config``, no running
    Homeport is used. With ``--kubeconfig``, ``--context`` or ``--as``, ``HOMEPORT_SERVER`` and ``nearby`` are skipped,
    because a Homeport there can belong to another cluster.

    Raises ``UsageError``, ``CommandError``, ``CredentialsError``, and what ``of_file`` and ``of_cluster`` raise.
    """
    check_not_empty(arguments, "server", "saved", "config")
    judges_here = bool(arguments.saved or arguments.local or arguments.config)
    names_cluster = bool(arguments.kubeconfig or arguments.context or arguments.impersonated)
    server = arguments.server or (None if judges_here or names_cluster else os.environ.get(SERVER))
    if arguments.config and server:
        raise UsageError("--config is for --saved and --local: a running Homeport has its own configuration")
    if judges_here and getattr(arguments, "watch", False):
        raise UsageError("--watch needs a running Homeport: a listed or saved cluster does not change")
    if server:
        _say(arguments, f"the answer comes from {server}")
        return Server(server, arguments.certificate_authority, arguments.client_certificate, arguments.client_key)
    if arguments.saved:
        _say(arguments, f"the answer comes from {arguments.saved}, judged here by {_profiles(arguments)}")
        return of_file(arguments.saved)
    missed: list[str] = []
    if not judges_here and not names_cluster and (pages := _nearby(nearby, missed)) is not None:
        _say(arguments, f"the answer comes from {pages[1]}")
        return pages[0]
    try:
        return _of_cluster(arguments, of_cluster, judges_here=judges_here)
    except (CommandError, CredentialsError) as error:
        if not missed:
            raise
        raise CommandError("\n".join((*missed, str(error), WHERE))) from error


def running_of(arguments: argparse.Namespace, nearby: Sequence[str]) -> Server | PortForward:
    """Return a running Homeport that a browser can reach.

    The order is: ``--server``, ``HOMEPORT_SERVER``, the URLs ``nearby``, a port-forward to a pod. With a flag that
    names a cluster, ``HOMEPORT_SERVER`` and ``nearby`` are skipped.

    Raises ``UsageError``, ``CommandError`` and ``CredentialsError``.
    """
    check_not_empty(arguments, "server")
    names_cluster = bool(arguments.kubeconfig or arguments.context or arguments.impersonated)
    if server := arguments.server or (None if names_cluster else os.environ.get(SERVER)):
        return Server(server)
    missed: list[str] = []
    if not names_cluster and (pages := _nearby(nearby, missed)) is not None:
        return pages[0]
    connection = ClusterConnection(login_of(arguments))
    reached = by_port_forward(connection, arguments.homeport_namespace, missed)
    if reached is None:
        raise CommandError("\n".join((*missed, NOTHING_RUNS)))
    _say(arguments, f"the page comes from {reached[1]}")
    return reached[0]


def check_not_empty(arguments: argparse.Namespace, *flags: str) -> None:
    """Raise ``UsageError`` if a flag has an empty value, for example from an unset shell variable.

    Without this check, the command would act as without the flag, and for example use the live cluster.
    """
    for flag in flags:
        if getattr(arguments, flag) == "":
            raise UsageError(f"--{flag} is empty")


def _nearby(urls: Sequence[str], missed: list[str]) -> tuple[Server, str] | None:
    """Return the first Homeport that answers, with its URL; ``None`` if none does. Add the failures to ``missed``."""
    for url in urls:
        server = Server(url)
        try:
            check_status(server)
        except PageNotServed as cause:
            missed.append(str(cause) if str(cause).startswith(url) else f"{url}: {cause}")
        except CommandError:
            return server, url  # a Homeport that refuses this page can serve others
        else:
            return server, url
    return None


def _of_cluster(arguments: argparse.Namespace, of_cluster: OfCluster, *, judges_here: bool) -> Pages:
    """Return the pages of the Homeport in the cluster; without one, or with ``judges_here``, those of this process."""
    login, missed = login_of(arguments), ""
    if not judges_here:
        pages, missed = _in_cluster(login, arguments.homeport_namespace)
        if pages is not None:
            _say(arguments, f"the answer comes from {missed}")
            return pages
        if getattr(arguments, "watch", False):
            raise UsageError(f"--watch needs a running Homeport ({missed})")
    why = f"{missed}: " if missed else ""
    _say(arguments, f"{why}this process lists the cluster and judges by {_profiles(arguments)}")
    return of_cluster(login, ProgressLine(quiet=arguments.quiet))


def _in_cluster(login: Login, namespace: str) -> tuple[Pages | None, str]:
    """Return the pages of the Homeport in the cluster and a text that names it; or ``None``, and why there is none."""
    connection, missed = ClusterConnection(login), list[str]()
    reached = by_service(connection, namespace, missed) or by_port_forward(connection, namespace, missed)
    return (None, "; ".join(missed)) if reached is None else reached


def _profiles(arguments: argparse.Namespace) -> str:
    config = arguments.config or os.environ.get(CONFIG)
    return f"the profiles of {config}" if config else "the default profile"


def _say(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.quiet:
        print(f"homeport: {text}", file=sys.stderr)  # noqa: T201  # for the person at the terminal
