"""Objects that exist in the cluster but cannot be decoded.

If a plugin reads such an object by its name, or all objects in its namespace, ``Unreadable`` is raised.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from app.framework.objects import Unreadable
from app.kube.kinds import Kind
from app.kube.meta_v1 import ObjectKey


class UnreadableObjects(dict[Kind[Any], dict[ObjectKey, str]]):
    """Error messages of the objects that cannot be decoded, by kind and key.

    The table is usually empty, so frequent callers of ``require`` test ``if unreadable`` first, to save time.
    """

    __slots__ = ()

    def add(self, kind: Kind[Any], key: ObjectKey, cause: str) -> None:
        """Add an object, or replace its error message. ``cause``: the message."""
        self.setdefault(kind, {})[key] = cause

    def discard(self, kind: Kind[Any], key: ObjectKey) -> None:
        """Remove an object if it is in the table."""
        causes = self.of(kind)
        causes.pop(key, None)
        if not causes:
            self.pop(kind, None)

    def of(self, kind: Kind[Any]) -> dict[ObjectKey, str]:
        """Return the error messages of one kind, by key."""
        return self.get(kind, {})

    def names(self, kind: Kind[Any]) -> Collection[str]:
        """Return the set of names of the unreadable objects of one kind, without their namespaces."""
        return {name for _, name in self.of(kind)}

    def require(self, kind: Kind[Any], namespace: str, name: str) -> None:
        """Raise ``Unreadable`` if the object cannot be decoded."""
        self._raise(kind, (namespace, name))

    def require_all(self, kind: Kind[Any], namespace: str) -> None:
        """Raise ``Unreadable`` if any object of the kind in the namespace cannot be decoded."""
        for key in self.of(kind):
            if key[0] == namespace:
                self._raise(kind, key)

    def _raise(self, kind: Kind[Any], key: ObjectKey) -> None:
        cause = self.of(kind).get(key)
        if cause is not None:
            raise Unreadable(kind.kind, "/".join(filter(None, key)), cause)
