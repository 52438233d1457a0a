"""Failpoints at every await of chosen modules, put there as they are imported: the product knows nothing of them.

An import hook rewrites each ``await x`` into ``(await fire(p, "before"), await x, await fire(p, "after"))[1]``, and
does the like for ``async for``, ``async with`` and asynchronous comprehensions. Nothing is suspended by that unless an
action says so. A point is named by module, function and its number among the function's awaits::

    app.verbs.bind:BindVerb._run:3

What happens at points is said by rules; what they did, and where the process was killed, is appended to a log that
survives the kill.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.abc
import importlib.machinery
import mmap
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from math import inf
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, Literal, TypeAlias

Side: TypeAlias = Literal["before", "after"]
Action: TypeAlias = Literal["delay", "error"]

BINDING: Final = (
    "app.writes.api_writes",
    "app.writes.bind_guard",
    "app.writes.read_back",
    "app.kube.client",
    "app.kube.transport",
    "app.kube.connections",
    "app.runtime.binding",
    "app.verbs.bind",
    "app.verbs.settlements",
    "app.verbs.transaction",
    "plugins.in_tree.default_binder",
)
"""Everything between a bind request and its write, and what follows the write."""

HOMES: Final = (
    "app.controllers.plugin_runs",
    "app.framework.background",
    "app.writes.activator",
    "app.writes.events",
    *(
        f"plugins.sticky_node.{name}"
        for name in ("annotations", "background", "plugin", "reconciler", "recorder", "unusable_homes", "waiting_pods")
    ),
)
"""What keeps homes up beside binds: written, moved, given back, forgotten and told, and pods woken."""

MODULES: Final = (*BINDING, *HOMES)

READS: Final = tuple(
    f"app.kube.{name}"
    for name in (
        "client:KubeClient.aclose:*",
        "client:KubeClient.__aexit__:*",
        "client:KubeClient.resolve:*",
        "client:KubeClient.list_page:*",
        "transport:Transport.aclose:*",
        "transport:Transport.send:*",
        "transport:Transport.stream:*",
        "transport:Transport._opened:*",
        "transport:Transport._opened_by_httpx:*",
        "transport:Transport._streamed:*",
        "transport:Transport._authorized:*",
        "transport:Transport._attempt:*",
        "transport:Transport._http_for:*",
        "transport:Transport._converted_errors:*",
        "transport:Transport._drop_idle_connections:*",
        "transport:Transport._retire:*",
        "connections:Connections.connect:*",
    )
)
"""Points in those modules that reading passes as well, most of all while a process starts."""

AIMED: Final = 0.5
"""How often a process is killed at the point it is to be killed at: not always the first time."""

UNAIMED: Final = 0.05
"""How often, at a point that was not aimed at: else nobody would ever get through a bind that comes late."""

_COUNT_BYTES: Final = 8
_FIRE: Final = "__fire__"
_IMPORT: Final = f"from {__name__} import fire as {_FIRE}"
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SIDES: Final[tuple[Side, ...]] = ("before", "after")


@dataclass(frozen=True, slots=True)
class Point:
    """``expression``: what is awaited, as source; empty for statements."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Rule:
    """``action`` at the points whose name matches ``point`` and, if given, whose expression is ``expression``.

    It applies with ``probability`` to each pass. ``delay`` waits ``seconds``, ``error`` raises (``module:class``).
    """

    point: str
    action: Action
    side: Side = "before"
    expression: str = ""
    probability: float = 1.0
    seconds: float = 0.0
    error: str = "builtins:OSError"

    def applies_to(self, point: Point, side: Side) -> bool:
        named = fnmatchcase(point.name, self.point) and self.expression in ("", point.expression)
        return named and side == self.side


class Rewriter(ast.NodeTransformer):
    """Puts a failpoint around each await of one module; ``points`` are those it made, in order."""

    def __init__(self, module: str) -> None:
        self.points: list[Point] = []
        self._module = module
        self._scope: list[str] = []
        self._numbers: Counter[str] = Counter()

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:  # named by ast
        return self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._inside(node)

    def _inside(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()
        return node

    def _point(self, expression: str) -> str:
        function = ".".join(self._scope)
        self._numbers[function] += 1
        point = Point(f"{self._module}:{function}:{self._numbers[function]}", expression)
        self.points.append(point)
        return point.name

    def visit_Await(self, node: ast.Await) -> ast.AST:
        name = self._point(ast.unparse(node.value))
        return self._around(name, self.generic_visit(node))

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _COMPREHENSIONS) and any(it.is_async for it in node.generators):
            name = self._point(ast.unparse(node))
            return self._around(name, self.generic_visit(node))
        return super().visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> list[ast.stmt]:
        name = self._point("")
        self.generic_visit(node)
        return [_statement(name, "before", node), node, _statement(name, "after", node)]

    def visit_AsyncWith(self, node: ast.AsyncWith) -> list[ast.stmt]:
        name = self._point("")
        self.generic_visit(node)
        node.body.insert(0, _statement(name, "after", node))
        return [_statement(name, "before", node), node]

    def _around(self, name: str, node: Any) -> ast.AST:
        parts = [_call(name, "before"), node, _call(name, "after")]
        whole = ast.Subscript(ast.Tuple(parts, ast.Load()), ast.Constant(1), ast.Load())
        return ast.fix_missing_locations(ast.copy_location(whole, node))


def _call(name: str, side: Side) -> ast.expr:
    return ast.Await(ast.Call(ast.Name(_FIRE, ast.Load()), [ast.Constant(name), ast.Constant(side)], []))


def _statement(name: str, side: Side, beside: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(_call(name, side)), beside))


def rewritten(source: str | bytes, module: str, path: str) -> tuple[CodeType, list[Point]]:
    """The module's code with failpoints, and which those are."""
    tree = ast.parse(source, path)
    rewriter = Rewriter(module)
    rewriter.visit(tree)
    first = next(number for number, it in enumerate(tree.body) if not _is_head(it))
    tree.body.insert(first, *ast.parse(_IMPORT).body)
    return compile(ast.fix_missing_locations(tree), path, "exec"), rewriter.points


def _is_head(statement: ast.stmt) -> bool:
    """The docstring, and imports that have to come first."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code, points = rewritten(self.get_data(path), fullname, path)
        CONTROL.add(points)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, modules: Iterable[str]) -> None:
        self._modules = frozenset(modules)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._modules:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def install(modules: Iterable[str] = MODULES) -> None:
    """Rewrite these modules as they are imported from now on."""
    chosen = tuple(modules)
    if known := [it for it in chosen if it in sys.modules]:
        raise RuntimeError(f"imported already: {', '.join(known)}")
    sys.meta_path.insert(0, _Finder(chosen))


def points_of(modules: Iterable[str] = MODULES) -> list[Point]:
    """The points that rewriting these modules makes; imports none of them."""
    found: list[Point] = []
    for module in modules:
        path = _path_of(module)
        found += rewritten(path.read_bytes(), module, str(path))[1]
    return found


def _path_of(module: str) -> Path:
    root = Path(__file__).parents[2]
    return root.joinpath(*module.split(".")).with_suffix(".py")


@dataclass(slots=True)
class KillPlan:
    """Kill at the point ``aim``; after ``patience`` seconds anywhere, at points rarely killed at rather: as often as
    ``1 / (1 + kills there) ** 1.5``. Until ``budget`` is spent. Patience runs from when ``begins`` is passed first: a
    process that starts on a busy machine does nothing yet.

    ``spared`` are points at which nobody is killed: how a client lists and watches is no part of a bind. Nor is anybody
    killed without an aim before it has passed ``quiet`` others, so that some work is done by every process. Once the
    file ``over`` exists nobody is killed any more.
    """

    budget: int
    quiet: int = 0
    made: Counter[str] = field(default_factory=Counter)
    spared: tuple[str, ...] = ()
    over: Path | None = None
    aim: str = ""
    begins: str = ""
    patience: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, bool] = field(default_factory=dict)
    _until: float = 0.0

    def __post_init__(self) -> None:
        self._until = inf if self.aim else 0.0

    def strikes(self, at: str, chance: random.Random) -> bool:
        if self.made.total() >= self.budget or self._is_spared(at):
            return False
        if at == self.begins and self._until == inf:
            self._until = self.clock() + self.patience
        if at == self.aim:
            wanted = AIMED
        elif self.clock() < self._until:
            return False
        else:
            self.quiet -= 1
            often = UNAIMED if self.aim else 1.0
            wanted = often * (self.quiet < 0) / (1 + self.made[at]) ** 1.5
        return chance.random() < wanted and (self.over is None or not self.over.exists())

    def _is_spared(self, at: str) -> bool:
        if at not in self._known:
            self._known[at] = matches(at, self.spared)
        return self._known[at]


def aim_among(points: Sequence[str], told: Mapping[str, Counter[str]]) -> str:
    """The first of those at which fewest were to be killed; ``told``: what the log holds. Empty without points."""
    tried = told.get("aim", Counter())
    return min(points, key=tried.__getitem__, default="")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether any of the patterns, as of a shell, is of this name."""
    return any(fnmatchcase(name, it) for it in patterns)


class Passed:
    """How often each of these was passed, by every process that shares the file: a kill loses nothing."""

    def __init__(self, file: Path, names: Sequence[str]) -> None:
        """``names``: the same, in the same order, for all who use the file."""
        self._places = {name: number for number, name in enumerate(names)}
        opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(opened, _COUNT_BYTES * max(len(names), 1))
            self._counts = memoryview(mmap.mmap(opened, 0)).cast("Q")
        finally:
            os.close(opened)

    def add(self, name: str) -> None:
        place = self._places.get(name)
        if place is not None:
            self._counts[place] += 1

    def counts(self) -> dict[str, int]:
        return {name: self._counts[place] for name, place in self._places.items()}


class Control:
    """What happens at points in this process. Without rules, plan or log: nothing."""

    def __init__(self) -> None:
        self.points: dict[str, Point] = {}
        self._rules: list[Rule] = []
        self._applying: dict[str, list[Rule]] = {}
        self._log: int | None = None
        self._passed: Passed | None = None
        self.plan: KillPlan | None = None
        self.chance = random.Random(0)

    def add(self, points: Iterable[Point]) -> None:
        self.points |= {it.name: it for it in points}

    def set(
        self,
        rules: Iterable[Rule],
        *,
        plan: KillPlan | None = None,
        seed: int = 0,
        log: Path | None = None,
        passed: Passed | None = None,
    ) -> None:
        """Replace everything that was set before."""
        self._passed = passed
        self._rules, self._applying = list(rules), {}
        self.plan, self.chance = plan, random.Random(seed)
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if plan is not None and plan.aim:
            self._note("aim", plan.aim)

    async def fire(self, name: str, side: Side) -> None:
        at = f"{name}:{side}"
        if self._passed is not None:
            self._passed.add(at)
        if self.plan is not None and self.plan.strikes(at, self.chance):
            self._note("kill", at)
            os.kill(os.getpid(), signal.SIGKILL)
        if at not in self._applying:
            self._applying[at] = [it for it in self._rules if it.applies_to(self.points[name], side)]
        for rule in self._applying[at]:
            if self.chance.random() < rule.probability:
                await self._act(rule, at)

    async def _act(self, rule: Rule, at: str) -> None:
        self._note(rule.action, at)
        if rule.action == "delay":
            await asyncio.sleep(rule.seconds)
        else:
            module, _, name = rule.error.partition(":")
            raise getattr(import_module(module), name)(f"injected at {at}")

    def _note(self, what: str, at: str) -> None:
        if self._log is not None:
            os.write(self._log, f"{what} {at}\n".encode())


CONTROL: Final = Control()
fire = CONTROL.fire


def passed_file(log: Path) -> Path:
    """Where it is counted how often points were passed, beside a log."""
    return log.with_suffix(".passed")


def sides_of(points: Iterable[Point]) -> list[str]:
    """Each point before and after, in the order in which all processes count them."""
    return sorted(f"{point.name}:{side}" for point in points for side in SIDES)


def noted(log: Path) -> dict[str, Counter[str]]:
    """What a log holds: by word (``aim``, ``kill``, …) how often at each point and side."""
    found: dict[str, Counter[str]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        what, _, at = line.partition(" ")
        found.setdefault(what, Counter())[at] += 1
    return found
