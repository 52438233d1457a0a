"""docs/operations/logs.md lists every event that can be logged, with its levels and fields, and nothing else."""

from __future__ import annotations

import ast
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.contract.pages import rows as table
from tests.contract.pages import ticked
from tests.contract.test_docs import page
from tests.served import started

ROOT: Final = Path(__file__).parents[2]
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
LOGGERS: Final = ("_LOG", "self._log")

Event: TypeAlias = tuple[str, str, frozenset[str]]
"""Name, level, fields."""


def found() -> dict[str, tuple[set[str], set[str]]]:
    """Every event in the code with its levels and fields."""
    events: dict[str, tuple[set[str], set[str]]] = {}
    for path in sorted([*(ROOT / "app").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]):
        for name, level, fields in in_module(ast.parse(path.read_text(encoding="utf-8"))):
            levels, known = events.setdefault(name, (set(), set()))
            levels.add(level)
            known |= fields
    return events


def in_module(module: ast.Module) -> Iterator[Event]:
    """The calls of a logger. A first argument that is no text would be an event without a name."""
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    on_loggers = [
        (call, called, ast.unparse(called.value)) for call in calls if isinstance(called := call.func, ast.Attribute)
    ]
    bound = {
        it.arg or "**"
        for call, called, on in on_loggers
        if on == "_LOG" and called.attr == "bind"
        for it in call.keywords
    }
    for call, called, on in on_loggers:
        if on in LOGGERS and called.attr in (*LEVELS, "exception"):
            fields = {it.arg or "**" for it in call.keywords} | (bound if on == "self._log" else set())
            for name in names(call.args[0]):
                yield name, called.attr, frozenset(fields)


def names(argument: ast.expr) -> list[str]:
    if isinstance(argument, ast.IfExp):
        return [*names(argument.body), *names(argument.orelse)]
    assert isinstance(argument, ast.Constant), ast.unparse(argument)
    return [str(argument.value)]


def test_every_event_is_in_the_table_with_its_levels_and_fields() -> None:
    rows = table(page("operations/logs.md"), "event")

    assert {name: (sorted(levels), sorted(fields)) for name, (levels, fields) in found().items()} == {
        ticked(name)[0]: (sorted(levels.split(", ")), sorted(ticked(fields))) for name, levels, fields, _ in rows
    }


def test_the_table_is_in_order_of_the_alphabet() -> None:
    shown = [ticked(name)[0] for name, *_ in table(page("operations/logs.md"), "event")]

    assert sorted(shown, key=str.lower) == shown


def test_nobody_logs_past_these_loggers() -> None:
    """An event that is logged in another way is in no list."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "app").rglob("*.py")}
    others = [path.name for path, text in texts.items() if "getLogger" in text and path.name != "logging.py"]

    assert [] == others


def test_the_lines_of_a_whole_life(tmp_path: Path) -> None:
    """In a namespace with a Service called homeport, with a client that speaks no HTTP: each line is an object."""
    links = {"HOMEPORT_PORT": "tcp://10.96.0.10:8888", "HOMEPORT_SERVICE_HOST": "10.96.0.10"}
    cluster = ROOT / "examples" / "sample-cluster.yaml"
    with started(tmp_path, "--cluster", cluster, environment=links) as (process, http):
        port = http.base_url.port
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"hello\r\n\r\n")
            assert client.recv(1024).startswith(b"HTTP/1.1 400 ")
        process.stop()
        lines: list[dict[str, Any]] = [json.loads(line) for line in process.log().splitlines()]

    assert [
        "service links ignored",
        "no preemption for topology spread",
        "serving",
        "snapshot complete",
        "home not usable",
        "connection or request rejected",
        "ending",
        "ended",
    ] == [it["event"] for it in lines]
    assert [sorted(links), port, 12, "no_http", "SIGTERM", 0] == [
        lines[0]["variables"],
        lines[2]["port"],
        lines[3]["objects"]["v1 Node"],
        lines[5]["cause"],
        lines[6]["signal"],
        lines[7]["requests"],
    ]
    assert [] == [it for it in lines if not {"event", "level", "timestamp"} <= it.keys()]
