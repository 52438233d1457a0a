"""Plugin ``kubectl homeport`` for krew: reads the pages of the Homeport in the cluster, through kubectl.

kubectl sends the requests with the user's contexts and credentials. The API server's proxy forwards each request to the
operator Service of Homeport's chart. Without this Service the plugin cannot answer.

The plugin uses only the standard library. ``tests/krew.py`` packs it together with the modules of ``app`` that it
imports.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from app.commands import drain, explain, home_list, pending
from app.commands.output import printable, structured
from app.commands.targets import TargetError, explained, namespace_of

WAITS: Final = 1
"""Exit code if a pod waits, or would wait."""

USAGE: Final = 2
FAILED: Final = 3
"""Exit code if there is no answer."""

INTERRUPTED: Final = 130

SERVICES: Final = "homeport.dev/pages=operator"
"""Label selector of the operator Services, as the chart labels them."""

_PROG: Final = "kubectl homeport"
_ERROR: Final = re.compile(r"error: |Error from server(?: \(\w+\))?: ")
_LOG_LINE: Final = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")
_OUTPUTS: Final = ("wide", "json", "name")

Json = dict[str, Any]


class AskError(Exception):
    """Raised if there is no answer. The message is printed for the user."""


@dataclass(frozen=True)
class Kubectl:
    """The kubectl in PATH, run with the flags that the user gave."""

    flags: tuple[str, ...]

    def run(self, *arguments: str, body: str | None = None) -> str:
        """Return the output of kubectl. ``body``: its standard input. Raises ``AskError`` if kubectl fails."""
        command = ["kubectl", *arguments, *self.flags]
        try:
            done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)  # noqa: S603
        except OSError as error:
            raise AskError(f"kubectl: {error.strerror}") from error
        if done.returncode:
            raise AskError(_error(done.stderr) or f"kubectl ended with {done.returncode}")
        return done.stdout


def _error(told: str) -> str:
    """Return kubectl's text on standard error, without log lines and without prefixes such as ``error:``."""
    text = "\n".join(line for line in told.strip().splitlines() if not _LOG_LINE.match(line))
    return _ERROR.sub("", text, count=1).removeprefix("homeport: ")


@dataclass(frozen=True)
class ServicePages:
    """Pages of Homeport behind a Service. ``path``: path of the Service in the API server's proxy."""

    kubectl: Kubectl
    path: str

    def get(self, path: str, query: Mapping[str, str]) -> Json:
        """Send a GET request; return the JSON object in the answer. Raises ``AskError`` if that fails."""
        parameters = f"?{urlencode(query)}" if query else ""
        return _decoded(self.kubectl.run("get", "--raw", f"{self.path}{path}{parameters}"))

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        """Send a POST request; return the JSON object in the answer. Raises ``AskError`` if that fails."""
        return _decoded(self.kubectl.run("create", "--raw", f"{self.path}{path}", "-f", "-", body=json.dumps(body)))


def _decoded(text: str) -> Json:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise AskError(f"the answer is not a JSON object: {error}") from error


def pages_of(kubectl: Kubectl, namespace: str) -> tuple[ServicePages, str]:
    """Return the pages of the first operator Service that answers, and its name. Raises ``AskError`` if none does.

    Services in several namespaces are refused, because every user who can create Services can create such a Service.

    ``namespace``: where to search; empty for all.
    """
    where = ("-n", namespace) if namespace else ("-A",)
    services = _decoded(kubectl.run("get", "services", *where, "-l", SERVICES, "-o", "json"))["items"]
    namespaces = {it["metadata"]["namespace"] for it in services}
    if len(namespaces) > 1:
        raise AskError(
            f"Homeport has Services in several namespaces: use --homeport-namespace {' or '.join(sorted(namespaces))}"
        )
    missed = []
    for service in services:
        name, of = service["metadata"]["name"], service["metadata"]["namespace"]
        for port in service["spec"]["ports"]:
            proxied = quote(f"http:{name}:{port.get('name') or port['port']}", safe=":")
            pages = ServicePages(kubectl, f"/api/v1/namespaces/{of}/services/{proxied}/proxy")
            try:
                status = pages.get("/api/v1/status", {})
            except AskError as error:
                missed.append(f"Service {of}/{name}: {error}")
            else:
                if isinstance(status.get("feeds"), dict):
                    return pages, f"{of}/{name}"
                missed.append(f"Service {of}/{name}: the answer is not that of a Homeport")
    raise AskError("\n".join(missed) or "there is no operator Service of Homeport: see operatorService of its chart")


Ask = Callable[[], ServicePages]
NamespaceOfContext = Callable[[], str]


def run_explain(arguments: argparse.Namespace, default: NamespaceOfContext, ask: Ask) -> int:
    given = arguments.target, arguments.selector, arguments.node, arguments.namespace
    path, query = explained(*given, default, everywhere=arguments.all_namespaces)
    answer = ask().get(path, query)
    _print(_text(answer, arguments, explain.lines(answer, arguments.output)))
    explanations = [answer] if "items" not in answer else [it["explanation"] for it in answer["items"]]
    if not explanations:
        where = (
            "any namespace" if arguments.all_namespaces else f"namespace {namespace_of(arguments.namespace, default)}"
        )
        raise AskError(f"no pods with the labels {arguments.selector} in {where}")
    return WAITS if any(it["verdict"] in ("NoNodeFits", "Gated") for it in explanations) else 0


def run_pending(arguments: argparse.Namespace, default: NamespaceOfContext, ask: Ask) -> int:
    namespace = "" if arguments.all_namespaces else namespace_of(arguments.namespace, default)
    answer = pending.pods(ask(), namespace, arguments.selector)
    _print(pending.listing(answer, namespace, arguments.output, headers=not arguments.no_headers))
    if not answer["items"]:
        _say("no pods wait")
    return 0


def run_homes(arguments: argparse.Namespace, default: NamespaceOfContext, ask: Ask) -> int:
    namespace = "" if arguments.all_namespaces else namespace_of(arguments.namespace, default)
    flags = {name: getattr(arguments, name) for name in ("orphaned", "away", "contradictory")}
    selection = home_list.HomeSelection(namespace, arguments.node, arguments.selector, **flags)
    text = home_list.listing(ask(), selection, arguments.output, headers=not arguments.no_headers)
    _print(text)
    if not text:
        _say("no such homes")
    return 0


def run_drain(arguments: argparse.Namespace, _: NamespaceOfContext, ask: Ask) -> int:
    answer = drain.answered(ask(), arguments.nodes, keeps_cordoned=arguments.keep_cordoned)
    _print(drain.rendered(answer, arguments.output, headers=not arguments.no_headers))
    if missing := drain.unknown(answer):
        raise AskError(missing)
    return WAITS if drain.waits(answer) else 0


def _text(answer: Json, arguments: argparse.Namespace, lines: Iterable[str]) -> str:
    text = structured(answer, arguments.output)
    return printable("\n".join(lines)) if text is None else text


def _print(text: str) -> None:
    """Print the answer. If the reader of a pipe is gone, SIGPIPE ends the process, as it ends other Unix commands."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if text:
        print(text, flush=True)  # noqa: T201  # the answer of the command


def _say(text: str) -> None:
    print(f"homeport: {printable(text)}", file=sys.stderr)  # noqa: T201  # for the person at the terminal


def parser(version: str) -> argparse.ArgumentParser:
    """Return the parser of all commands; their flags have the names and meanings of kubectl's."""
    root = argparse.ArgumentParser(
        _PROG,
        description="Ask the Homeport of this cluster, through the operator Service of its chart. "
        "The Python package homeport has more commands, and works without that Service.",
    )
    root.add_argument("--version", action="version", version=version)
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    of_explain = _command(commands, "explain", run_explain, "explain which nodes fit a pod, and why the others do not")
    of_explain.add_argument("target", nargs="?", default="", metavar="POD", help="NAME, KIND/NAME, or NAMESPACE/NAME")
    of_explain.add_argument("-l", "--selector", default="", help="explain all pods with these labels")
    of_explain.add_argument("--node", default="", help="also print all verdicts on this node")
    of_explain.add_argument("-o", "--output", choices=("text", *_OUTPUTS), default="text", help="output format")

    of_pending = _command(commands, "pending", run_pending, "list the pods that wait for a node, longest first")
    of_homes = _command(commands, "homes", run_homes, "list homes")
    of_homes.add_argument("--node", default="", help="list only homes on this node")
    of_homes.add_argument("-l", "--selector", default="", help="list only homes whose pod has these labels")
    for flag in ("orphaned", "away", "contradictory"):
        of_homes.add_argument(f"--{flag}", action="store_true", help=f"list only homes that are {flag}")
    of_pending.add_argument("-l", "--selector", default="", help="list only pods with these labels")
    for listing in (of_explain, of_pending, of_homes):
        listing.add_argument("-A", "--all-namespaces", action="store_true", help="list those of all namespaces")

    of_drain = _command(commands, "drain", run_drain, "show where the pods of nodes would go, and which would wait")
    of_drain.add_argument("nodes", nargs="+", metavar="NODE", help="node to be drained; Homeport evicts no pods")
    of_drain.add_argument("--keep-cordoned", action="store_true", help="cordon all nodes first, and uncordon none")
    for listing in (of_pending, of_homes, of_drain):
        listing.add_argument("-o", "--output", choices=("table", *_OUTPUTS), default="table", help="output format")
        listing.add_argument("--no-headers", action="store_true", help="print no column names")
    return root


def _command(commands: Any, name: str, run: Callable[..., int], help_text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, description=f"{help_text.capitalize()}."
    )
    command.add_argument("-n", "--namespace", help="namespace. Default: that of the context.")
    command.add_argument(
        "--homeport-namespace", metavar="NAME", default="", help="search Homeport only in this namespace"
    )
    command.add_argument("--kubeconfig", metavar="FILE", default="", help="kubeconfig. Default: like kubectl.")
    command.add_argument("--context", metavar="NAME", default="", help="context of the kubeconfig")
    command.add_argument("--as", metavar="USER", dest="impersonated", default="", help="user to impersonate")
    command.add_argument("-q", "--quiet", action="store_true", help="do not print where the answer comes from")
    command.set_defaults(run=run)
    return command


def main(version: str, argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Return 0 if all is well, 1 if a pod waits or would wait, 2 for wrong usage, and 3 if there is no answer.
    """
    arguments = parser(version).parse_args(argv)
    given = {"--kubeconfig": arguments.kubeconfig, "--context": arguments.context, "--as": arguments.impersonated}
    kubectl = Kubectl(tuple(text for name, value in given.items() if value for text in (name, value)))

    def ask() -> ServicePages:
        pages, service = pages_of(kubectl, arguments.homeport_namespace)
        if not arguments.quiet:
            _say(f"the answer comes from Service {service}, through the API server")
        return pages

    def namespace() -> str:
        try:
            return kubectl.run("config", "view", "--minify", "-o", "jsonpath={..namespace}") or "default"
        except AskError:
            return "default"  # no current context, for example in a pod; kubectl uses the same namespace

    try:
        return int(arguments.run(arguments, namespace, ask))
    except TargetError as error:
        _say(str(error))
        return USAGE
    except AskError as error:
        _say(str(error))
        return FAILED
    except (KeyError, TypeError, AttributeError) as error:
        what = f"has no field {error}" if isinstance(error, KeyError) else "has another type"
        _say(f"the answer {what}: the Homeport there is another version than {version}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
