"""Types of a plugin's explanations (facts behind its verdict) and gauges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from msgspec import Struct


class Table(Struct, frozen=True):
    """Table of facts for a person: cells are strings, integers or booleans."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | bool, ...], ...]


class Explanation(Struct, frozen=True):
    """Facts behind a plugin's verdict, with the names and numbers that a reason must not contain.

    ``unblock``: sentences, each one change that would make the pod schedulable. ``later``: computes slow
    additions, such as what ``handle.profile.why`` returns. It is called with the nodes that pass the
    profile's filters, and left out if it fails or takes longer than some seconds.
    """

    tables: tuple[Table, ...] = ()
    unblock: tuple[str, ...] = ()
    later: Callable[[Collection[str]], Awaitable[Explanation]] | None = None


class Figure(Struct, frozen=True):
    """One sample of a gauge: exposed as ``homeport_<name>`` with ``labels`` and, as ``profile``, the schedulerName.

    ``text`` describes the gauge, equal for all samples of a name. Labels must have few values, none set by a tenant.
    """

    name: str
    text: str
    value: float
    labels: Mapping[str, str] = {}
