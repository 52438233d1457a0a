"""Objects of all kinds except pods and nodes, by kind, namespace and name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, TypeVar, cast

from msgspec import Struct

from app.cache.changes import ChangeLog
from app.kube.kinds import Kind, KubeObject
from app.kube.memo import Newest
from app.kube.meta_v1 import ObjectKey, precedes

Object = TypeVar("Object", bound=KubeObject)
Listener = Callable[[Any, Any], None]
"""Callback (old, new) for a stored object; see ``ObjectStore.on_change``."""

_MOST_DELETED: Final = 8192
"""Maximum number of remembered UIDs: more than the number of objects that are deleted while one read is in flight."""


class DeletedUids:
    """UIDs of recently deleted objects.

    A read outside of the watch can return an object after the watch has shown its deletion. Such an object must not be
    stored.
    """

    __slots__ = ("_uids",)

    def __init__(self) -> None:
        self._uids = Newest[str, None](_MOST_DELETED)

    def add(self, uid: str) -> None:
        if uid:
            self._uids.put(uid, None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids


class ObjectStore:
    """Objects by kind, namespace and name.

    With ``newest_wins``, a late watch event does not replace a newer version, for example from a write. ``changes``:
    number of changes of all objects so far.
    """

    def __init__(self) -> None:
        self._objects: dict[Kind[Any], dict[str, dict[str, KubeObject]]] = {}
        self._versions: dict[tuple[Kind[Any], str], int] = {}
        self._emptied: dict[Kind[Any], int] = {}
        self._latest: dict[Kind[Any], int] = {}
        self._deleted = DeletedUids()
        self._listeners: dict[Kind[Any], list[Listener]] = {}
        self._logs: dict[Kind[Any], ChangeLog[ObjectKey]] = {}
        self.changes = 0

    def on_change(self, kind: Kind[Any], listener: Listener) -> None:
        """Call ``listener(old, new)`` whenever an object of the kind is stored, but not when it is deleted.

        The listener is also called if the stored object equals the previous version. ``old`` is ``None`` if the object
        is new, or if an object with another UID had this name.
        """
        self._listeners.setdefault(kind, []).append(listener)

    def changed(self, kind: Kind[Any], seen: int) -> list[ObjectKey] | None:
        """Return the keys of the objects of a kind added, changed or deleted since ``kind_version`` was ``seen``.

        The earliest change comes first. Return ``None`` if the log of the kind begins after ``seen``, because any
        object can have changed then. The log begins with the first call for the kind.
        """
        log = self._logs.get(kind)
        if log is None:
            log = self._logs[kind] = ChangeLog(self.kind_version(kind))
        keys = log.since(seen)
        return None if keys is None else keys[::-1]

    def get(self, kind: Kind[Object], namespace: str, name: str) -> Object | None:
        return cast("Object | None", self._objects.get(kind, {}).get(namespace, {}).get(name))

    def in_namespace(self, kind: Kind[Object], namespace: str) -> Collection[Object]:
        return cast("Collection[Object]", self._objects.get(kind, {}).get(namespace, {}).values())

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        """Return the version of a kind's objects in a namespace; without ``namespace``, that of all its objects.

        The version is a number that increases with every change of these objects. Data derived from these objects is
        valid while the version stays the same. All namespaces without objects share a version, which increases when a
        namespace loses its last object, or when ``touch`` names an object in one of them.
        """
        if namespace is None:
            return self.kind_version(kind)
        version = self._versions.get((kind, namespace))
        return self._emptied.get(kind, 0) if version is None else version

    def keys(self, kind: Kind[Any]) -> Iterator[ObjectKey]:
        """Yield the keys of a kind's objects. Objects can be added and deleted between two keys."""
        namespaces = self._objects.get(kind, {})
        for namespace in tuple(namespaces):
            yield from ((namespace, name) for name in tuple(namespaces.get(namespace, ())))

    def kinds(self) -> tuple[Kind[Any], ...]:
        """Return the kinds of which at least one object has been stored, even if all were deleted since."""
        return tuple(self._objects)

    def count(self, kind: Kind[Any]) -> int:
        return sum(map(len, self._objects.get(kind, {}).values()))

    def upsert(self, kind: Kind[Any], obj: KubeObject, *, newest_wins: bool = True) -> None:
        """Store an object. With ``newest_wins``, ignore the object if a newer version is stored."""
        namespace, name = obj.key
        objects = self._objects.setdefault(kind, {}).setdefault(namespace, {})
        known = objects.get(name)
        if newest_wins and _is_older(obj, known):
            return
        objects[name] = obj
        if not _is_same(known, obj):
            self.touch(kind, obj.key)
        listeners = self._listeners.get(kind)
        if listeners is not None:
            old = known if known is not None and known.uid == obj.uid else None
            for listener in listeners:
                listener(old, obj)

    def upsert_read(self, kind: Kind[Any], obj: KubeObject) -> None:
        """Like ``upsert``, for an object from a read or a write; ignored if the watch has shown its deletion."""
        if obj.uid not in self._deleted:
            self.upsert(kind, obj)

    def delete(self, kind: Kind[Any], key: ObjectKey, uid: str = "") -> None:
        """Remove an object, and remember its UID. If ``uid`` is not empty, remove only an object with this UID."""
        namespace, name = key
        objects = self._objects.get(kind, {}).get(namespace, {})
        known = objects.get(name)
        self._deleted.add(uid or (known.uid if known is not None else ""))
        if known is not None and uid in ("", known.uid):
            del objects[name]
            self.touch(kind, key)
            if not objects:
                del self._objects[kind][namespace], self._versions[(kind, namespace)]
                self._emptied[kind] = self.changes

    def kind_version(self, kind: Kind[Any]) -> int:
        """Return a number that increases with every change of an object of the kind, in any namespace."""
        return self._latest.get(kind, 0)

    def touch(self, kind: Kind[Any], key: ObjectKey) -> None:
        """Record a change of an object: increase the versions of its kind and namespace, and add ``key`` to the log."""
        namespace, _ = key
        self.changes += 1
        self._latest[kind] = self.changes
        if kind in self._logs:
            self._logs[kind].note(key, self.changes)
        if namespace in self._objects.get(kind, {}):
            self._versions[(kind, namespace)] = self.changes
        else:
            self._emptied[kind] = self.changes


def _is_same(known: KubeObject | None, obj: KubeObject) -> bool:
    """Return true if the decoded fields of two versions differ at most in ``resource_version``.

    Examples are an update of fields that Homeport does not read, and an object that is listed again.
    """
    if known is None or type(known) is not type(obj) or not isinstance(obj, Struct):
        return False
    fields = (name for name in obj.__struct_fields__ if name != "resource_version")
    return all(getattr(known, name) == getattr(obj, name) for name in fields)


def _is_older(obj: KubeObject, known: KubeObject | None) -> bool:
    """Return true if ``obj`` is an earlier version of ``known``, or an earlier object with the same name."""
    return known is not None and precedes(getattr(obj, "resource_version", ""), getattr(known, "resource_version", ""))
