"""The part of docs/style.md that a machine can check: how docstrings begin, long sentences, names that say nothing."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = sorted(it for folder in ("app", "plugins", "homeport", "krew") for it in (ROOT / folder).rglob("*.py"))
PAGES: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *(it for folder in ("docs", "plugins", "helm", "examples") for it in (ROOT / folder).rglob("*.md")),
    ]
)
MOST_WORDS: Final = 30
BEGINNINGS: Final = re.compile(r"(What|Whether|Those|Of|By|How|Who|The same)\b")
MAY_NOT: Final = re.compile(r"(?<!\")\bmay not\b(?!\")", re.IGNORECASE)
EMPTY_NAMES: Final = frozenset({"it", "found", "asked"})
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
SENTENCE_ENDS: Final = re.compile(r"(?<=[.;:!?])[)*_`\"]*\s+|\n\s*\n|\n\s*(?:[-*>#]|\d+\.)\s")


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes, functions and constants, without their drawings, which are indented."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Constant(str(text))):
                yield node.lineno, re.sub(r"^ {2,}.*$", "", cleandoc(text), flags=re.MULTILINE)


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Comments, with consecutive lines as one text."""
    begun, text, last = 0, "", 0
    with io.StringIO(path.read_text(encoding="utf-8")) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT:
                line, words = token.start[0], token.string.lstrip("#! ")
                if line == last + 1 and text:
                    text += f" {words}"
                else:
                    yield begun, text
                    begun, text = line, words
                last = line
    yield begun, text


def in_code(path: Path) -> Iterator[tuple[int, str]]:
    yield from docstrings(ast.parse(path.read_text(encoding="utf-8")))
    yield from comments(path)


def in_page(path: Path) -> Iterator[tuple[int, str]]:
    """Prose of a page by its paragraphs: without code, tables and addresses of links."""
    page = path.read_text(encoding="utf-8")
    text = re.sub(r"(?ms)^(```|~~~).*?^\1", lambda it: "\n" * it[0].count("\n"), page)
    text = re.sub(r"^\|.*$|<!--.*?-->|\]\([^)]*\)", "", text, flags=re.MULTILINE)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", text):
        yield line, paragraph
        line += paragraph.count("\n")


def long_sentences(text: str) -> list[str]:
    return [it for it in SENTENCE_ENDS.split(text) if it and len(it.split()) > MOST_WORDS]


def bound_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that are bound in a module, but for those of comprehensions and lambdas."""
    match node:
        case ast.Name(name, ast.Store()) | ast.arg(name) | ast.Attribute(_, name, ast.Store()):
            yield node.lineno, name
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
            yield node.lineno, name
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, COMPREHENSIONS):
            yield from bound_names(child)


@pytest.mark.parametrize("path", MODULES, ids=lambda it: str(it.relative_to(ROOT)))
def test_docstrings_begin_with_what_the_thing_is_or_does(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))

    assert [] == [f"{where(path, line)} {text[:60]}" for line, text in docstrings(tree) if BEGINNINGS.match(text)]


@pytest.mark.parametrize("path", MODULES, ids=lambda it: str(it.relative_to(ROOT)))
def test_code_has_no_long_sentence(path: Path) -> None:
    assert [] == [f"{where(path, line)} {it}" for line, text in in_code(path) for it in long_sentences(text)]


@pytest.mark.parametrize("path", PAGES, ids=lambda it: str(it.relative_to(ROOT)))
def test_pages_have_no_long_sentence(path: Path) -> None:
    assert [] == [f"{where(path, line)} {it}" for line, text in in_page(path) for it in long_sentences(text)]


@pytest.mark.parametrize("path", [*MODULES, *PAGES], ids=lambda it: str(it.relative_to(ROOT)))
def test_nothing_may_not(path: Path) -> None:
    """It can mean "must not" and "might not"; a page that says so quotes it."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)

    assert [] == [
        where(path, number) for number, line in lines if re.search(r"(?<!\")\bmay not\b(?!\")", line, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda it: str(it.relative_to(ROOT)))
def test_names_say_what_they_hold(path: Path) -> None:
    names = bound_names(ast.parse(path.read_text(encoding="utf-8")))

    assert [] == [f"{where(path, line)} {name}" for line, name in names if name in EMPTY_NAMES]


def test_a_class_name_is_used_once() -> None:
    classes = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(where(path, node.lineno))

    assert {} == {name: places for name, places in classes.items() if len(places) > 1}
