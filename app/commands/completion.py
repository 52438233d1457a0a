"""Completion of ``kubectl homeport``, with cobra's protocol, which kubectl's shell scripts use.

kubectl calls ``kubectl_complete-homeport`` with the words typed so far, of which the last can be empty. It reads one
completion per line, and then a directive. Names of pods, workloads, nodes and namespaces come from the API server.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from app.commands.arguments import kubectl_parser
from app.commands.targets import PODS, collection_of, kind_of
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import Login

_NO_FILES: Final = ":4"
"""Directive of cobra: the shell must not offer names of files."""

_LIST: Final = "list"
"""Action of ``homes`` if the user gives no action."""

_SECONDS: Final = 2
"""Maximum seconds of a completion. Then the process ends without an answer, because the user's shell waits."""

_COLLECTIONS: Final = {
    "node": "/api/v1/nodes",
    "nodes": "/api/v1/nodes",
    "namespace": "/api/v1/namespaces",
    "homeport_namespace": "/api/v1/namespaces",
}
"""API path of the list of objects whose names an argument can have, by the argument's name in the parser."""

Names = Callable[[Login, str], Iterable[str]]
"""Function that returns the names of the objects in the list at a path of the API server.

It returns none if the request fails.
"""


@contextmanager
def time_limit() -> Iterator[None]:
    """End the process by SIGALRM if the block takes longer than ``_SECONDS``."""
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def completions(words: Sequence[str], names: Names) -> list[str]:
    """Return the completions of the last word, and the directive. ``names``: reads names of objects."""
    typed, last = words[:-1], words[-1] if words else ""
    parser: argparse.ArgumentParser = kubectl_parser()
    given = list(typed)
    for word in typed:
        if word in _commands(parser):
            parser = _commands(parser)[word]
            given = given[given.index(word) + 1 :]
    try:
        known = [*_known(parser, given, last, lambda path: names(_login(typed), path))]
    except CredentialsError:
        known = []
    return [*(word for word in known if word.startswith(last)), _NO_FILES]


def _known(
    parser: argparse.ArgumentParser, given: Sequence[str], last: str, names: Callable[[str], Iterable[str]]
) -> Iterable[str]:
    """Return the possible words at the place of ``last``: flags, values of the flag before it, commands, or names.

    ``given``: words between the command and ``last``.
    """
    commands = _commands(parser)
    of = commands.get(_LIST, parser)
    if last.startswith("-"):
        return [flag for action in _actions(of) for flag in action.option_strings]
    values = {flag: it for it in _actions(of) if it.nargs != 0 for flag in it.option_strings}
    before = values.get(given[-1]) if given else None
    if before is not None:
        return map(str, before.choices) if before.choices else _names(before.dest, given, last, names)
    if commands:
        return commands
    positional = [it for it in _actions(of) if not it.option_strings]
    number = sum(
        not word.startswith("-") and previous not in values for previous, word in zip(("", *given), given, strict=False)
    )
    if positional and positional[-1].nargs == "+":
        number = min(number, len(positional) - 1)
    return _names(positional[number].dest, given, last, names) if number < len(positional) else ()


def _names(dest: str, given: Sequence[str], last: str, names: Callable[[str], Iterable[str]]) -> Iterable[str]:
    """Return the possible values of an argument that names an object; empty for other arguments.

    ``dest``: the parser's name of the argument.
    """
    if dest in _COLLECTIONS:
        return names(_COLLECTIONS[dest])
    if dest not in ("target", "workload", "owner"):
        return ()
    before, slash, _ = last.rpartition("/")
    kind = kind_of(before)
    namespace = _value(given, "-n", "--namespace")
    if kind is None and before.lower() not in PODS:
        if dest != "target":
            return ()
        namespace = before or namespace
    prefix, plural = collection_of(kind)
    place = quote(namespace or _login(given).namespace(), safe="")
    return (f"{before}{slash}{name}" for name in names(f"{prefix}/namespaces/{place}/{plural}"))


def _login(given: Sequence[str]) -> Login:
    return Login(_value(given, "--kubeconfig") or None, _value(given, "--context"), _value(given, "--as"))


def _value(given: Sequence[str], *flags: str) -> str:
    """Return the value of a flag among the typed words, as ``--flag value`` or ``--flag=value``; empty if not given."""
    for word, following in zip(given, (*given[1:], ""), strict=False):
        name, equals, value = word.partition("=")
        if name in flags:
            return value if equals else following
    return ""


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands, by name."""
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # see _actions
            return dict(action.choices)
    return {}


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  # argparse has no other way to list them
