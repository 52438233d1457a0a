"""Choice of the Homeport that answers a command: a URL, a file, one in the cluster, or this process."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from app.commands.cluster_pages import ClusterConnection, by_port_forward, by_service
from app.commands.progress import ProgressLine
from app.commands.question_flags import SERVER
from app.commands.service import CommandError, NotServed, Pages, Server
from app.kube.credentials import Login

STATUS_PATH = "/api/v1/status"

OfFile = Callable[[str], Pages]
"""Function that returns the pages about the saved cluster in a file."""

OfCluster = Callable[[Login, ProgressLine], Pages]
"""Function that lists the cluster of a login, and returns the pages about it."""


def login_of(arguments: argparse.Namespace) -> Login:
    return Login(arguments.kubeconfig, arguments.context, arguments.impersonated)


def source_of(
    arguments: argparse.Namespace, of_file: OfFile, of_cluster: OfCluster, *, nearby: Sequence[str] = ()
) -> Pages:
    """Return the pages that answer, and say on standard error which they are.

    The order is: ``--server``, ``--saved``, a Homeport at one of the URLs ``nearby``, the operator Service through the
    API server, a port-forward to a pod, this process. Raises ``CommandError`` and ``CredentialsError``.
    """
    server = arguments.server or (None if arguments.saved or arguments.local else os.environ.get(SERVER))
    if arguments.config and not (arguments.saved or arguments.local):
        raise CommandError("--config is for --saved and --local: a running Homeport has its own configuration")
    if server:
        return Server((server,), arguments.certificate_authority, arguments.client_certificate, arguments.client_key)
    if arguments.saved:
        return of_file(arguments.saved)
    missed: list[str] = []
    if not arguments.local:
        pages = _nearby(nearby, missed) or _in_cluster(arguments, missed)
        if pages is not None:
            _say(arguments, f"the answer comes from {pages[1]}")
            return pages[0]
    why = "" if arguments.local else "no Homeport runs in this cluster: "
    profile = f"the profiles of {arguments.config}" if arguments.config else "kube-scheduler's default profile"
    _say(arguments, f"{why}this process lists the cluster and judges by {profile}")
    return of_cluster(login_of(arguments), ProgressLine(quiet=arguments.quiet))


def _nearby(urls: Sequence[str], missed: list[str]) -> tuple[Pages, str] | None:
    for url in urls:
        server = Server((url,))
        try:
            server.get(STATUS_PATH, {})
        except NotServed as cause:
            missed.append(str(cause))
        except CommandError:
            return server, url  # a Homeport that refuses this page can serve others
        else:
            return server, url
    return None


def _in_cluster(arguments: argparse.Namespace, missed: list[str]) -> tuple[Pages, str] | None:
    connection = ClusterConnection(login_of(arguments))
    where = arguments.homeport_namespace
    return by_service(connection, where, missed) or by_port_forward(connection, where, missed)


def _say(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.quiet:
        print(f"homeport: {text}", file=sys.stderr)  # noqa: T201  # for the person at the terminal
