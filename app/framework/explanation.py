"""Types with which a plugin explains its verdicts and exposes gauges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from msgspec import Struct


class Table(Struct, frozen=True):
    """Table of facts that is shown to people."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | bool, ...], ...]


class Explanation(Struct, frozen=True):
    """Facts behind a plugin's verdict, with the names and numbers that a reason must not contain.

    ``unblock``: sentences that each name one change that would make the pod schedulable. ``later``: function for slow
    additions, for example the verdicts of ``handle.profile.why``. It is called with the names of the nodes that pass
    the profile's filters. Its additions are left out if it fails or takes longer than 6 seconds.
    """

    tables: tuple[Table, ...] = ()
    unblock: tuple[str, ...] = ()
    later: Callable[[Collection[str]], Awaitable[Explanation]] | None = None


class Figure(Struct, frozen=True):
    """One sample of a gauge, exposed as ``homeport_<name>`` with ``labels``.

    Homeport adds the label ``profile`` with the profile's schedulerName. ``text`` describes the gauge, and must be the
    same for all samples of a name. Each label must have few possible values, and no tenant must be able to set them.
    """

    name: str
    text: str
    value: float
    labels: Mapping[str, str] = {}
