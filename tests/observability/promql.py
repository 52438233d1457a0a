"""Reads PromQL as far as is needed to say which series an expression asks for, and by which labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

FUNCTIONS: Final = frozenset(
    {"absent", "changes", "histogram_quantile", "increase", "quantile_over_time", "rate", "time"}
)
"""Those in use; another one is to be added here."""

_AGGREGATIONS: Final = frozenset({"count", "max", "min", "sum"})
_BY: Final = frozenset({"by", "on", "group_left"})
_OPERATORS: Final = frozenset({"and", "or", "unless"})
_SUFFIXES: Final = ("_bucket", "_sum", "_count")
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<number>\d+(?:\.\d+)?[smhdw]?)"""
    r"""|(?P<range>\[(?:\d+[smhdw](?::\d+[smhdw])?|\$__rate_interval)\])|(?P<sign>=~|!~|==|!=|<=|>=|[-+*/<>=(){},]))"""
)
_MATCHER: Final = re.compile(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')


class Mistake(ValueError):
    """The expression cannot be read."""


class Asked(Struct, frozen=True):
    """``metrics``: the labels matched, with their values, by metric · ``grouping``: labels that are grouped by."""

    metrics: Mapping[str, Mapping[str, str]]
    grouping: frozenset[str]


def asked(expression: str) -> Asked:
    """What an expression asks for. Raises ``Mistake``."""
    tokens = _tokens(expression)
    metrics: dict[str, dict[str, str]] = {}
    grouping: set[str] = set()
    place = 0
    while place < len(tokens):
        kind, text = tokens[place]
        after = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        if kind == "name" and text in _BY:
            labels, place = _list(tokens, place + 1)
            grouping |= labels
        elif kind == "name" and text in FUNCTIONS | _AGGREGATIONS:
            if after not in ("(", "by"):
                raise Mistake(f"{text} is not called: {expression}")
        elif kind == "name" and text not in _OPERATORS:
            matchers, place = _matchers(tokens, place + 1) if after == "{" else ({}, place)
            metrics.setdefault(text, {}).update(matchers)
        place += 1
    return Asked(metrics, frozenset(grouping))


def family(series: str, histograms: frozenset[str]) -> str:
    """The metric that a series is part of."""
    for suffix in _SUFFIXES:
        if series.endswith(suffix) and series.removesuffix(suffix) in histograms:
            return series.removesuffix(suffix)
    return series


def _tokens(expression: str) -> list[tuple[str, str]]:
    found, place = [], 0
    expression = expression.rstrip()
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        if match is None or match.lastgroup is None:
            raise Mistake(f"cannot be read from here on: {expression[place:]}")
        found.append((match.lastgroup, match.group(match.lastgroup)))
        place = match.end()
    return found


def _list(tokens: list[tuple[str, str]], place: int) -> tuple[set[str], int]:
    """The labels in parentheses from ``place`` on, and where they end."""
    if place >= len(tokens) or tokens[place][1] != "(":
        raise Mistake("labels to group by are missing")
    end = next(at for at in range(place, len(tokens)) if tokens[at][1] == ")")
    return {text for kind, text in tokens[place:end] if kind == "name"}, end


def _matchers(tokens: list[tuple[str, str]], place: int) -> tuple[dict[str, str], int]:
    end = next(at for at in range(place, len(tokens)) if tokens[at][1] == "}")
    inside = "".join(text for _, text in tokens[place + 1 : end])
    found = _MATCHER.findall(inside)
    if ",".join(f'{label}{sign}"{value}"' for label, sign, value in found) != inside.rstrip(","):
        raise Mistake(f"{{{inside}}} is no list of matchers")
    return {label: value for label, _, value in found}, end
