"""Objects that exist and cannot be read: each is left out by itself, and named where a decision would rest on it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from app.framework.objects import Unreadable
from app.kube.kinds import Kind
from app.kube.meta_v1 import ObjectKey


class UnreadableObjects(dict[Kind[Any], dict[ObjectKey, str]]):
    """By kind and key, with the cause; it is mostly empty, which is asked on every way in."""

    __slots__ = ()

    def add(self, kind: Kind[Any], key: ObjectKey, cause: str) -> None:
        self.setdefault(kind, {})[key] = cause

    def discard(self, kind: Kind[Any], key: ObjectKey) -> None:
        causes = self.of(kind)
        causes.pop(key, None)
        if not causes:
            self.pop(kind, None)

    def of(self, kind: Kind[Any]) -> dict[ObjectKey, str]:
        """Those of one kind, with their causes."""
        return self.get(kind, {})

    def names(self, kind: Kind[Any]) -> Collection[str]:
        """Those of a kind without namespaces, as a set."""
        return {name for _, name in self.of(kind)}

    def require(self, kind: Kind[Any], namespace: str, name: str) -> None:
        """Raises ``Unreadable`` for one that is left out."""
        self._raise(kind, (namespace, name))

    def require_all(self, kind: Kind[Any], namespace: str) -> None:
        """Raises ``Unreadable`` for the first of a namespace that is left out."""
        for key in self.of(kind):
            if key[0] == namespace:
                self._raise(kind, key)

    def _raise(self, kind: Kind[Any], key: ObjectKey) -> None:
        cause = self.of(kind).get(key)
        if cause is not None:
            raise Unreadable(kind.kind, "/".join(filter(None, key)), cause)
