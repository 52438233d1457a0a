"""Objects of any kind that plugins read, by kind, namespace and name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import takewhile
from typing import Any, Final, TypeVar, cast

from msgspec import Struct

from app.kube.kinds import Kind, KubeObject
from app.kube.memo import Newest
from app.kube.meta_v1 import ObjectKey, precedes

Object = TypeVar("Object", bound=KubeObject)
Listener = Callable[[Any, Any], None]
"""Told of an object as it was known and as it is now."""


_MOST_GONE: Final = 8192

_MOST_NOTED: Final = 1 << 17
"""Objects of a kind whose changes are listed: what there is, and some that is gone."""


class DeletedUids:
    """UIDs of what was deleted lately. A read past the watch may answer with something the watch has shown deleted."""

    __slots__ = ("_uids",)

    def __init__(self) -> None:
        self._uids = Newest[str, None](_MOST_GONE)

    def add(self, uid: str) -> None:
        if uid:
            self._uids.put(uid, None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids


class _Journal:
    """The objects of a kind that changed, each listed once, by its last change. ``since``: from then on."""

    __slots__ = ("_at", "_forgotten")

    def __init__(self, since: int) -> None:
        self._at = Newest[ObjectKey, int](_MOST_NOTED)
        self._forgotten = since

    def note(self, key: ObjectKey, now: int) -> None:
        if (forgotten := self._at.put(key, now)) is not None:
            self._forgotten = forgotten[1]

    def since(self, seen: int) -> list[ObjectKey] | None:
        """The earliest first; ``None`` if it was not listed yet, or is no more."""
        if seen < self._forgotten:
            return None
        found = [key for key, _ in takewhile(lambda it: it[1] > seen, reversed(self._at.items()))]
        return found[::-1]


class ObjectStore:
    """Holds the newest form seen of each object: what we wrote ourselves is not undone by an older watch event."""

    def __init__(self) -> None:
        self._objects: dict[Kind[Any], dict[str, dict[str, KubeObject]]] = {}
        self._versions: dict[tuple[Kind[Any], str], int] = {}
        self._emptied: dict[Kind[Any], int] = {}
        self._latest: dict[Kind[Any], int] = {}
        self._gone = DeletedUids()
        self._listeners: dict[Kind[Any], list[Listener]] = {}
        self._journals: dict[Kind[Any], _Journal] = {}
        self.changes = 0

    def on_change(self, kind: Kind[Any], listener: Listener) -> None:
        """Call ``listener(old, new)`` whenever an object of the kind is added or changes, not when it is deleted.

        ``old`` is ``None`` where it was not there, or was another object of that name.
        """
        self._listeners.setdefault(kind, []).append(listener)

    def changed(self, kind: Kind[Any], seen: int) -> list[ObjectKey] | None:
        """Which objects of a kind came, changed or went since its version was ``seen``; ``None`` for any of them.

        Listed from when it is first asked for.
        """
        journal = self._journals.get(kind)
        if journal is None:
            journal = self._journals[kind] = _Journal(self.kind_version(kind))
        return journal.since(seen)

    def get(self, kind: Kind[Object], namespace: str, name: str) -> Object | None:
        return cast("Object | None", self._objects.get(kind, {}).get(namespace, {}).get(name))

    def in_namespace(self, kind: Kind[Object], namespace: str) -> Collection[Object]:
        return cast("Collection[Object]", self._objects.get(kind, {}).get(namespace, {}).values())

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        """Moves whenever an object there does, never back: what was derived at one version is right at that one only.

        Namespaces without an object share the number at which one became so last, which is later than any of theirs.
        Without a namespace, it is that of all objects of the kind.
        """
        if namespace is None:
            return self.kind_version(kind)
        found = self._versions.get((kind, namespace))
        return self._emptied.get(kind, 0) if found is None else found

    def keys(self, kind: Kind[Any]) -> Iterator[ObjectKey]:
        """Objects may come and go while it is read."""
        namespaces = self._objects.get(kind, {})
        for namespace in tuple(namespaces):
            yield from ((namespace, name) for name in tuple(namespaces.get(namespace, ())))

    def count(self, kind: Kind[Any]) -> int:
        return sum(map(len, self._objects.get(kind, {}).values()))

    def upsert(self, kind: Kind[Any], found: KubeObject, *, newest_wins: bool = True) -> None:
        namespace, name = found.key
        objects = self._objects.setdefault(kind, {}).setdefault(namespace, {})
        known = objects.get(name)
        if newest_wins and _is_older(found, known):
            return
        objects[name] = found
        if not _is_same(known, found):
            self.touch(kind, found.key)
        listeners = self._listeners.get(kind)
        if listeners is not None:
            old = known if known is not None and known.uid == found.uid else None
            for listener in listeners:
                listener(old, found)

    def upsert_read(self, kind: Kind[Any], found: KubeObject) -> None:
        """Take in what was read or written past the watch, unless it is known to be gone."""
        if found.uid not in self._gone:
            self.upsert(kind, found)

    def delete(self, kind: Kind[Any], key: ObjectKey, uid: str = "") -> None:
        """Remove an object; with ``uid`` only if it is still that one."""
        namespace, name = key
        objects = self._objects.get(kind, {}).get(namespace, {})
        known = objects.get(name)
        self._gone.add(uid or (known.uid if known is not None else ""))
        if known is not None and uid in ("", known.uid):
            del objects[name]
            self.touch(kind, key)
            if not objects:
                del self._objects[kind][namespace], self._versions[(kind, namespace)]
                self._emptied[kind] = self.changes

    def kind_version(self, kind: Kind[Any]) -> int:
        """Moves whenever an object of the kind does, in whatever namespace."""
        return self._latest.get(kind, 0)

    def touch(self, kind: Kind[Any], key: ObjectKey) -> None:
        """What was derived from the object, or from those of the kind in its namespace, has to be derived anew."""
        namespace, _ = key
        self.changes += 1
        self._latest[kind] = self.changes
        if kind in self._journals:
            self._journals[kind].note(key, self.changes)
        if namespace in self._objects.get(kind, {}):
            self._versions[(kind, namespace)] = self.changes
        else:
            self._emptied[kind] = self.changes


def _is_same(known: KubeObject | None, found: KubeObject) -> bool:
    """Whether two forms differ in nothing but the version: a status was written, or a list was taken anew."""
    if known is None or type(known) is not type(found) or not isinstance(found, Struct):
        return False
    fields = (name for name in found.__struct_fields__ if name != "resource_version")
    return all(getattr(known, name) == getattr(found, name) for name in fields)


def _is_older(found: KubeObject, known: KubeObject | None) -> bool:
    """Whether ``found`` is an earlier form of ``known``, or a predecessor of that name."""
    return known is not None and precedes(
        getattr(found, "resource_version", ""), getattr(known, "resource_version", "")
    )
