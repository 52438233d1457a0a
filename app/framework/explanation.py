"""What a plugin tells people: the facts behind its answer, and its gauges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from msgspec import Struct


class Table(Struct, frozen=True):
    """Facts for a person: cells are texts, whole numbers or truth values."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | bool, ...], ...]


class Explanation(Struct, frozen=True):
    """What a plugin's answer rests on, with the names and numbers that a reason must not contain.

    ``unblock``: sentences, each one change that would let the pod in somewhere. ``later``: finds out what
    is to be added and takes time, such as what ``handle.profile.why`` tells. It is called with the nodes that pass the
    profile's filters, and left out if it fails or takes longer than some seconds.
    """

    tables: tuple[Table, ...] = ()
    unblock: tuple[str, ...] = ()
    later: Callable[[Collection[str]], Awaitable[Explanation]] | None = None


class Figure(Struct, frozen=True):
    """One sample of a gauge: exposed as ``homeport_<name>`` with ``labels`` and, as ``profile``, the schedulerName.

    ``text`` says what it is, the same for all samples of a name. Labels take few values, none of them a tenant's.
    """

    name: str
    text: str
    value: float
    labels: Mapping[str, str] = {}
