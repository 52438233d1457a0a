"""Commands with questions about a cluster. Each prints the answer and returns the exit code.

``explain`` returns 1 if no node fits a pod, or if a pod is gated or is being deleted. ``drain``, ``simulate`` and
``lose`` return 1 if a pod would wait, stay Terminating or not be evicted, or if this is unknown. ``rebalance`` returns
1 if a constraint stays above ``maxSkew``, or if this is unknown. Otherwise, commands return 0.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from app.commands import drain, explain, home_list, homes, lose, pending, rebalance, report, simulate, skew
from app.commands.output import printable, structured
from app.commands.service import CommandError, Pages, UsageError
from app.commands.sources import login_of
from app.commands.targets import TargetError, explained, kind_of, unknown_kind
from app.kube.names import is_label, shown
from app.kube.selectors import InvalidSelector, parse_selector
from app.whatif.models import LONGEST_LABEL_KEY, LONGEST_LABEL_VALUE
from app.whatif.rebalance_plan import MOST_EVICTIONS

WAITS: Final = 1
"""Exit code if a pod waits or would wait, or for another unwanted result (see above)."""

_WATCH_SECONDS: Final = 2.0
"""Seconds that ``--watch`` waits before it reads the list again."""

T = TypeVar("T")
Ask = Callable[[], Pages]
Question = Callable[[argparse.Namespace, Ask], int]
"""Function that runs a command and returns its exit code. ``Ask``: function that chooses the source of the answer and
returns its pages.
"""


def run_explain(arguments: argparse.Namespace, ask: Ask) -> int:
    path, query = _explained(arguments)
    answer = ask().get(path, query)
    explanations = [answer] if "items" not in answer else [it["explanation"] for it in answer["items"]]
    text = structured(answer, arguments.output)
    if text is None:
        text = printable("\n".join(explain.lines(answer, arguments.output)))
    if text:
        print(text)  # noqa: T201  # the answer of the command
    if not explanations:
        where = "any namespace" if arguments.all_namespaces else f"namespace {_namespace(arguments)}"
        raise CommandError(f"no pods with the labels {arguments.selector} in {where}")
    return WAITS if any(it["verdict"] in ("NoNodeFits", "Gated", "Terminating") for it in explanations) else 0


def _explained(arguments: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """Return the path and the query for the target of ``explain``. Raises ``UsageError``."""
    given = arguments.target or "", _selector(arguments), arguments.node, arguments.namespace
    try:
        return explained(*given, lambda: _namespace(arguments), everywhere=arguments.all_namespaces)
    except TargetError as error:
        raise UsageError(str(error)) from error


def run_pending(arguments: argparse.Namespace, ask: Ask) -> int:
    namespace = "" if arguments.all_namespaces else _namespace(arguments)
    selector = _selector(arguments)
    server = ask()

    def listed(*, headers: bool) -> tuple[str, int, list[str]]:
        answer = pending.pods(server, namespace, selector)
        text = pending.listing(answer, namespace, arguments.output, headers=headers)
        ageless = {**answer, "items": [{**it, "since": ""} for it in answer["items"]]}
        return text, len(answer["items"]), _keys(pending.listing(ageless, namespace, arguments.output, headers=headers))

    _print_list(arguments, listed, f"no pods wait {_where(namespace)}")
    return 0


def run_skew(arguments: argparse.Namespace, ask: Ask) -> int:
    namespace = "" if arguments.all_namespaces else _namespace(arguments)
    query = {"namespace": namespace} if namespace else {}
    if arguments.above:
        query["above"] = "true"
    if _selector(arguments):
        query["labelSelector"] = arguments.selector
    workload = _workload(arguments.workload)
    server = ask()
    answer = skew.workloads(server, query | workload)
    if workload and not answer["items"]:
        names = skew.similar_names(server, namespace, workload["kind"], workload["name"])
        raise CommandError(
            f"no spread constraint of {arguments.workload} {_where(namespace)} has a skew to show{names}"
        )
    if workload and arguments.output == "table":
        text = printable("\n".join(skew.drawn(answer)))
    else:
        text = skew.listing(answer, namespace, arguments.output, headers=not arguments.no_headers)
    if text:
        print(text)  # noqa: T201  # the answer of the command
    else:
        print(f"homeport: no such workloads {_where(namespace)}", file=sys.stderr)  # noqa: T201  # for the person
    return 0


def _workload(text: str | None) -> dict[str, str]:
    """Return ``kind`` and ``name`` of a workload given as KIND/NAME; empty without one. Raises ``UsageError``."""
    if not text:
        return {}
    kind, _, name = text.partition("/")
    if not name:
        raise UsageError(f"{shown(text)} is not a workload: use KIND/NAME, such as deploy/web")
    return {"kind": _kind(kind), "name": name}


def _kind(word: str) -> str:
    """Return the kind that a word names. Raises ``UsageError`` for an unknown kind."""
    kind = kind_of(word)
    if kind is None:
        raise UsageError(unknown_kind(word).replace("known are pod, ", "known are "))
    return kind


def run_homes_list(arguments: argparse.Namespace, ask: Ask) -> int:
    selection = home_list.HomeSelection(
        "" if arguments.all_namespaces else _namespace(arguments),
        arguments.node,
        _selector(arguments),
        orphaned=arguments.orphaned,
        away=arguments.away,
        contradictory=arguments.contradictory,
    )
    server = ask()

    def listed(*, headers: bool) -> tuple[str, int, list[str]]:
        text = home_list.listing(server, selection, arguments.output, headers=headers)
        return text, len(text), _keys(text)

    what = "no such homes" if selection.narrows else "no homes"
    _print_list(arguments, listed, f"{what} {_where(selection.namespace)}")
    return 0


def _where(namespace: str) -> str:
    return f"in namespace {namespace} (-A: in all)" if namespace else "anywhere"


def _keys(text: str) -> list[str]:
    """Return a key for each line: its text with single spaces, because the widths of columns depend on all lines."""
    return [" ".join(line.split()) for line in text.splitlines()]


def _print_list(arguments: argparse.Namespace, listed: Callable[..., tuple[str, int, list[str]]], none: str) -> None:
    """Print a list. With ``--watch``, then print new and changed lines until the user ends the command.

    ``listed``: returns the text, the number of items or of characters, and a key for each line. A line is new if its
    key was not in the list before. ``none``: message if the number is 0, except with ``-o name``. Raises ``UsageError``
    if the output cannot be watched.
    """
    if arguments.watch and arguments.output in ("json", "yaml"):
        raise UsageError(f"--watch prints lines, so it does not fit -o {arguments.output}")
    text, number, keys = listed(headers=not arguments.no_headers)
    if text:
        print(text, flush=True)  # noqa: T201  # the answer of the command
    if not number and arguments.output != "name":
        print(f"homeport: {none}", file=sys.stderr)  # noqa: T201  # for the person at the terminal
    if not arguments.watch:
        return
    known = set(keys)
    for again in _again(lambda: listed(headers=False)):
        text, _, keys = again
        for line, key in zip(text.splitlines(), keys, strict=True):
            if key not in known:
                print(line, flush=True)  # noqa: T201  # the answer of the command
        known = set(keys)


def _again(read: Callable[[], T]) -> Iterator[T]:
    while True:
        time.sleep(_WATCH_SECONDS)
        yield read()


def run_move(arguments: argparse.Namespace, ask: Ask) -> int:
    server = ask()
    owner = homes.owner_of(server, _namespace(arguments), arguments.owner)
    answer = homes.move(server, login_of(arguments), owner, arguments.node, force=arguments.force)
    print(answer)  # noqa: T201  # the answer of the command
    return 0


def run_release(arguments: argparse.Namespace, ask: Ask) -> int:
    server = ask()
    owner = homes.owner_of(server, _namespace(arguments), arguments.owner)
    print(homes.release(server, login_of(arguments), owner))  # noqa: T201  # the answer of the command
    return 0


def run_keep(arguments: argparse.Namespace, ask: Ask) -> int:
    server = ask()
    owner = homes.owner_of(server, _namespace(arguments), arguments.owner)
    print(homes.keep(server, login_of(arguments), owner))  # noqa: T201  # the answer of the command
    return 0


def run_drain(arguments: argparse.Namespace, ask: Ask) -> int:
    if not all(arguments.nodes):
        raise UsageError("the name of the node is empty")
    answer = drain.answered(ask(), arguments.nodes, keeps_cordoned=arguments.keep_cordoned)
    if text := drain.rendered(answer, arguments.output, headers=not arguments.no_headers):
        print(text)  # noqa: T201  # the answer of the command
    if missing := drain.unknown(answer):
        raise CommandError(missing)
    return WAITS if drain.waits(answer) else 0


def run_simulate(arguments: argparse.Namespace, ask: Ask) -> int:
    namespace = _namespace(arguments)
    if not arguments.files and not arguments.given:
        raise UsageError("nothing to simulate: give a file, a folder, - for input, or scale KIND/NAME=REPLICAS")
    answer = simulate.answered(ask(), arguments.files, arguments.given, namespace, preempts=arguments.preempt)
    print(printable(simulate.rendered(answer, arguments.output)))  # noqa: T201  # the answer of the command
    return WAITS if simulate.waits(answer) else 0


def run_rebalance(arguments: argparse.Namespace, ask: Ask) -> int:
    namespace = "" if arguments.all_namespaces else _namespace(arguments)
    workload = _workload(arguments.workload)
    if workload and not namespace:
        raise UsageError("a workload is in one namespace: give -n instead of -A")
    if not 1 <= arguments.most <= MOST_EVICTIONS:
        raise UsageError(f"--most must be from 1 to {MOST_EVICTIONS}")
    body = {"namespace": namespace, **workload, "most": arguments.most, "soft": arguments.soft}
    answer = rebalance.answered(ask(), body)
    if missing := rebalance.unknown(answer, namespace, arguments.workload or ""):
        raise CommandError(missing)
    if text := rebalance.rendered(answer, arguments.output):
        print(printable(text))  # noqa: T201  # the answer of the command
    return WAITS if rebalance.is_left(answer) else 0


def run_lose(arguments: argparse.Namespace, ask: Ask) -> int:
    key, equals, value = arguments.label.partition("=")
    if not key:
        raise UsageError("the key of the label is empty")
    if len(key) > LONGEST_LABEL_KEY or len(value) > LONGEST_LABEL_VALUE:
        raise UsageError(f"{shown(arguments.label)} cannot be a label: it is too long")
    answer = lose.answered(ask(), key, value if equals else None)
    if text := lose.rendered(answer, arguments.output):
        print(printable(text))  # noqa: T201  # the answer of the command
    return WAITS if lose.waits(answer) else 0


def run_report(arguments: argparse.Namespace, ask: Ask) -> int:
    answers = report.answers_of(ask())
    report.write(Path(arguments.output), report.html(answers, datetime.now(UTC)))
    print(f"wrote {arguments.output}")  # noqa: T201  # the answer of the command
    return 0


def _selector(arguments: argparse.Namespace) -> str:
    """Return the label selector given by ``--selector``; empty for none. Raises ``UsageError`` if it is invalid."""
    text: str = arguments.selector
    try:
        parse_selector(text)
    except InvalidSelector as error:
        raise UsageError(f"--selector: {error}") from error
    return text


def _namespace(arguments: argparse.Namespace) -> str:
    """Return the namespace given by ``--namespace``, else kubectl's default.

    Raises ``UsageError`` if it is invalid, and ``CredentialsError`` if the default cannot be read.
    """
    namespace: str | None = arguments.namespace
    if namespace is None:
        namespace = login_of(arguments).namespace()
    if not is_label(namespace):
        raise UsageError(f"{shown(namespace)} cannot be the name of a namespace")
    return namespace


QUESTIONS: Final[Mapping[str, Question]] = {
    "explain": run_explain,
    "pending": run_pending,
    "skew": run_skew,
    "homes list": run_homes_list,
    "homes move": run_move,
    "homes release": run_release,
    "homes keep": run_keep,
    "drain": run_drain,
    "simulate": run_simulate,
    "lose": run_lose,
    "rebalance": run_rebalance,
    "report": run_report,
}
"""Functions of the commands in this module, by the name that the parser stores as ``run``."""
