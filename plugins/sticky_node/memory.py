"""What outlives an owner: a Home for each machine that is remembered by its name.

    kubectl get homes

A machine that is made anew under its name finds its home there, before anything is written on it. Without the kind's
definition in the cluster nothing is remembered, and homes end with their owners.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from app.framework.interface import Objects, Writer
from app.kube.homes_v1alpha1 import API_VERSION, KIND, Home, decode_home, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.names import is_subdomain

HOMES: Final[Kind[Home]] = Kind(API_VERSION, KIND, decode_home)

MOST_ORPHANS: Final = 1000
"""Homes of a namespace whose machines are not there that are kept: the last ones that were written."""

MOST_OF_NAMESPACE: Final = 10_000
"""Homes of one namespace: those that are there are kept up, and no more are made."""

MOST_REMEMBERED: Final = 512
"""Homes of one object that are remembered."""


class Memory:
    """Reads what is remembered, and writes it."""

    def __init__(self, objects: Objects, writer: Writer, wall_clock: Callable[[], float]) -> None:
        """``wall_clock``: seconds since 1970."""
        self._objects = objects
        self._writer = writer
        self._wall_clock = wall_clock

    def of(self, kind: Kind[Any], found: AnnotatedObject, slot: str) -> Home | None:
        return remembered(self._objects, kind, found, slot)

    async def keep(self, kind: Kind[Any], found: AnnotatedObject, slot: str, node: str, machine: str) -> None:
        """Remember a home, in place of whatever has its name. Raises what the writer raises, and ``Unreadable``."""
        since = datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        owner: dict[str, str | None] = {"apiVersion": kind.api_version, "kind": kind.kind}
        owner |= {"name": found.name, "uid": found.uid}
        spec: dict[str, Any] = {"node": node, "since": since}
        name = memory_name(kind.api_version, kind.kind, found.name, slot)
        known = self._objects.get(HOMES, found.namespace, name)
        if known is not None:
            whole = {"owner": owner | {"slot": slot or None}, "machine": machine or None}
            await self._writer.change(HOMES, known, spec | whole)
        else:
            given = {"owner": owner | ({"slot": slot} if slot else {})} | ({"machine": machine} if machine else {})
            await self._writer.create(HOMES, found.namespace, name, spec | given)

    async def forget(self, home: Home) -> None:
        """Raises what the writer raises."""
        await self._writer.delete(HOMES, home)


def remembered(objects: Objects, kind: Kind[Any], found: AnnotatedObject, slot: str) -> Home | None:
    """What is remembered under an object's name, whatever its UID; ``None`` for what no node can be called."""
    home = objects.get(HOMES, found.namespace, memory_name(kind.api_version, kind.kind, found.name, slot))
    if home is None or not is_subdomain(home.node):
        return None
    keeper = home.keeper
    is_its = (keeper.api_version, keeper.kind, keeper.name, keeper.slot) == (
        kind.api_version,
        kind.kind,
        found.name,
        slot,
    )
    return home if is_its else None
