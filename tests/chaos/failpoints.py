"""Failpoints at every await of chosen modules, put there as they are imported: the product knows nothing of them.

An import hook rewrites each ``await x`` into ``(await fire(p, "before"), await x, await fire(p, "after"))[1]``, and
does the like for ``async for``, ``async with`` and asynchronous comprehensions. Nothing is suspended by that unless an
action says so. A point is named by module, function and its number among the function's awaits::

    app.verbs.bind:BindVerb._run:3

What happens at points is said by rules; what was reached, and where the process was killed, is appended to a log that
survives the kill.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.abc
import importlib.machinery
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, Literal, TypeAlias

Side: TypeAlias = Literal["before", "after"]
Action: TypeAlias = Literal["kill", "stop", "delay", "error", "drop"]

MODULES: Final = (
    "app.writes.api_writes",
    "app.writes.bind_guard",
    "app.kube.client",
    "app.kube.transport",
    "app.kube.connections",
    "app.runtime.acting",
    "app.verbs.bind",
    "app.verbs.settlements",
    "app.verbs.transaction",
    "plugins.default_binder",
    "plugins.sticky_node.plugin",
)
"""Everything between a bind request and its write, and what follows the write."""

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
        "transport:Transport._authorized:*",
        "transport:Transport._attempt:*",
        "transport:Transport._http_for:*",
        "transport:Transport._heard:*",
        "transport:Transport._distrust:*",
        "transport:Transport._retire:*",
        "transport:_answered:*",
        "transport:_lines:*",
    )
)
"""Points in those modules that reading passes as well, most of all while a process starts."""

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

    With ``hit`` on that hit alone, else with ``probability`` on each. ``kill`` is SIGKILL and ``stop`` SIGSTOP to this
    very process, ``delay`` waits ``seconds``, ``error`` raises (``module:class``), ``drop`` never comes back, as when a
    packet is lost: for points that a time limit encloses.
    """

    point: str
    action: Action
    side: Side = "before"
    expression: str = ""
    probability: float = 1.0
    hit: int = 0
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
    """Kill at points, rarely killed ones rather: with ``1 / (1 + kills there) ** 1.5``, until ``budget`` is spent.

    ``spared`` are points at which nobody is killed: how a client lists and watches is no part of a bind. Nor is anybody
    before it has passed ``quiet`` others, so that some work is done by every process. Once the file ``over`` exists
    nobody is killed any more.
    """

    budget: int
    quiet: int = 0
    made: Counter[str] = field(default_factory=Counter)
    spared: tuple[str, ...] = ()
    over: Path | None = None
    _known: dict[str, bool] = field(default_factory=dict)

    def strikes(self, at: str, chance: random.Random) -> bool:
        if self.made.total() >= self.budget or self._is_spared(at):
            return False
        self.quiet -= 1
        wanted: float = (self.quiet < 0) / (1 + self.made[at]) ** 1.5
        return chance.random() < wanted and (self.over is None or not self.over.exists())

    def _is_spared(self, at: str) -> bool:
        if at not in self._known:
            self._known[at] = matches(at, self.spared)
        return self._known[at]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether any of the patterns, as of a shell, is of this name."""
    return any(fnmatchcase(name, it) for it in patterns)


class Control:
    """What happens at points in this process. Without rules, plan or log: nothing."""

    def __init__(self) -> None:
        self.points: dict[str, Point] = {}
        self._rules: list[Rule] = []
        self._applying: dict[str, list[tuple[int, Rule]]] = {}
        self._hits: Counter[int] = Counter()
        self._reached: set[str] = set()
        self._log: int | None = None
        self.plan: KillPlan | None = None
        self.chance = random.Random(0)

    def add(self, points: Iterable[Point]) -> None:
        self.points |= {it.name: it for it in points}

    def set(
        self, rules: Iterable[Rule], *, plan: KillPlan | None = None, seed: int = 0, log: Path | None = None
    ) -> None:
        """Replace everything that was set before."""
        self._rules, self._applying, self._reached = list(rules), {}, set()
        self._hits.clear()
        self.plan, self.chance = plan, random.Random(seed)
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def fire(self, name: str, side: Side) -> None:
        at = f"{name}:{side}"
        if at not in self._reached:
            self._reached.add(at)
            self._note("reached", at)
        if self.plan is not None and self.plan.strikes(at, self.chance):
            self._kill(at)
        for number, rule in self._rules_at(name, side):
            self._hits[number] += 1
            if self._is_due(rule, self._hits[number]):
                await self._act(rule, at)

    def _rules_at(self, name: str, side: Side) -> list[tuple[int, Rule]]:
        at = f"{name}:{side}"
        if at not in self._applying:
            point = self.points[name]
            self._applying[at] = [it for it in enumerate(self._rules) if it[1].applies_to(point, side)]
        return self._applying[at]

    def _is_due(self, rule: Rule, hit: int) -> bool:
        return hit == rule.hit if rule.hit else self.chance.random() < rule.probability

    async def _act(self, rule: Rule, at: str) -> None:
        if rule.action == "kill":
            self._kill(at)
        self._note(rule.action, at)
        if rule.action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif rule.action == "delay":
            await asyncio.sleep(rule.seconds)
        elif rule.action == "drop":
            await asyncio.get_running_loop().create_future()
        else:
            module, _, name = rule.error.partition(":")
            raise getattr(import_module(module), name)(f"injected at {at}")

    def _kill(self, at: str) -> None:
        self._note("kill", at)
        os.kill(os.getpid(), signal.SIGKILL)

    def _note(self, what: str, at: str) -> None:
        if self._log is not None:
            os.write(self._log, f"{what} {at}\n".encode())


CONTROL: Final = Control()
fire = CONTROL.fire


def noted(log: Path) -> dict[str, Counter[str]]:
    """What a log holds: by word (``reached``, ``kill``, …) how often at each point and side."""
    found: dict[str, Counter[str]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        what, _, at = line.partition(" ")
        found.setdefault(what, Counter())[at] += 1
    return found
