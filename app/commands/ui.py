"""``homeport ui``: opens the page of a running Homeport in a browser."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence

from app.commands.cluster_pages import PortForward
from app.commands.sources import running_of


def run(arguments: argparse.Namespace, nearby: Sequence[str]) -> int:
    """Print the address of the page, and open it unless ``--no-browser`` is given. Return the exit code.

    A port-forward stays open until Ctrl-C. Raises ``CommandError`` if no Homeport runs or if the port-forward ends, and
    ``UsageError`` and ``CredentialsError``.
    """
    pages = running_of(arguments, nearby)
    address = f"{pages.url.rstrip('/')}/ui/"
    print(address, flush=True)  # noqa: T201  # the answer of the command
    if not arguments.no_browser and not webbrowser.open(address):
        print("homeport: there is no browser here: open the address yourself", file=sys.stderr)  # noqa: T201
    if isinstance(pages, PortForward):
        if not arguments.quiet:
            print("homeport: the port-forward ends with Ctrl-C", file=sys.stderr)  # noqa: T201  # for the person
        return pages.wait()
    return 0
