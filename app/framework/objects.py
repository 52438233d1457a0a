"""Interfaces to read objects of the kinds that a plugin declares, to write to them, and to bind pods."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.kube.kinds import AnnotatedObject, Kind, KubeObject
from app.kube.meta_v1 import ObjectKey

Object = TypeVar("Object", bound=KubeObject)


class Objects(Protocol):
    """Objects of the kinds that the plugin declared with ``Needs.kinds`` or ``writes``.

    The methods down to ``changed`` raise ``LookupError`` for any other kind, and for pods and nodes. ``get`` and
    ``in_namespace`` raise ``Unreadable`` if an object exists but cannot be decoded.

    A plugin must let both exceptions propagate. After ``Unreadable`` the verdict is an Error that names the object.
    """

    def get(self, kind: Kind[Object], namespace: str, name: str) -> Object | None:
        """Return the object; ``None`` if it does not exist. ``namespace`` is ``""`` for cluster-scoped kinds."""
        ...

    def in_namespace(self, kind: Kind[Object], namespace: str) -> Collection[Object]:
        """Return all objects of the kind in the namespace. Raises ``Unreadable`` if one of them cannot be decoded."""
        ...

    def every(self, kind: Kind[Object]) -> Iterator[Object]:
        """Iterate over all objects of a kind; they can change meanwhile. Too slow for the hot path.

        ``Unreadable`` is not raised. An object that cannot be decoded is included in its last readable version, or left
        out if there is none.
        """
        ...

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        """Return a stamp that changes whenever an object of the kind in the namespace changes.

        Use it to check if derived data is current. Without a namespace, the stamp covers all objects of the kind;
        ``""`` is the namespace of cluster-scoped kinds.
        """
        ...

    def changed(self, kind: Kind[Object], seen: int) -> Collection[tuple[ObjectKey, Object | None]] | None:
        """Return (key, object) for each object that was added, changed or deleted since ``version(kind)`` was ``seen``.

        The object is its present version; ``None`` if it was deleted.

        Returns ``None`` if the changes are unknown, for example at the first call. In that case, any object might have
        changed.
        """
        ...

    def annotated_pods(self) -> Collection[Pod]:
        """Return bound pods with annotations of the domain ``homeport.dev``, terminating ones included.

        A Binding writes such annotations to the pod, so a plugin can repair writes to other objects that a crash left
        incomplete.
        """
        ...

    def by_controller(self, kind: Kind[Any]) -> Mapping[str, Mapping[str, Pod]]:
        """Return all pods with a controller of this kind, by the controller's UID, then by pod UID.

        Pending, assumed, bound and terminating pods of all namespaces are included, finished ones are not. Controllers
        of an equally named kind of another API group are included, too. The mapping is live, so call this once, when
        the plugin is created.
        """
        ...

    def by_claim(self) -> Mapping[str, Mapping[str, Pod]]:
        """Return all pods that name a claim, by claim (``namespace/name``), then by pod UID.

        Ephemeral volumes name no claim. The mapping is live, so call this once, when the plugin is created. Raises
        ``LookupError`` unless a plugin of some profile declares ``Part.VOLUMES``.
        """
        ...

    def has_node(self, name: str) -> bool:
        """Return True if the snapshot has the node, even if its newest version cannot be decoded."""
        ...

    def misses_node(self, name: str) -> bool:
        """Return True if the snapshot knows no node of this name. A node that cannot be decoded gives False."""
        ...


class WriteConflict(Exception):
    """Error: the object has changed since it was read, or its name is taken. The snapshot now has the newest
    version.
    """


class ObjectGone(Exception):
    """Error: the object to write to no longer exists, or the namespace of a new object does not exist."""


class Unreadable(Exception):
    """Error: an object exists but cannot be decoded, so no decision can use it.

    ``key`` is ``namespace/name``; only the name for a cluster-scoped kind.
    """

    def __init__(self, kind: str, key: str, cause: str) -> None:
        super().__init__(f"{kind} {key} cannot be read: {cause}")


class NotServed(OSError):
    """Error: the API server does not serve the kind, for example because its CustomResourceDefinition is missing."""


class Writer(Protocol):
    """Writes annotations to the cluster's objects for a plugin, and whole objects of Homeport's own kinds.

    All writes use optimistic concurrency and are in the snapshot when the call returns. Each can raise
    ``WriteConflict``, ``ObjectGone``, ``NotServed``, or another ``OSError``, after which the write might nevertheless
    have taken effect.
    """

    async def annotate(
        self, kind: Kind[AnnotatedObject], target: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        """Set annotations of ``target``, or remove those given as ``None``, if ``target`` is unchanged since it was
        read.
        """
        ...

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        """Create an object. Raises ``WriteConflict`` if the name is taken, ``ObjectGone`` if the namespace does not
        exist, and ``OSError`` if it terminates.
        """
        ...

    async def change(self, kind: Kind[AnnotatedObject], target: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        """Set fields in the spec of ``target`` if it is unchanged since it was read; ``None`` removes a field."""
        ...

    async def delete(self, kind: Kind[AnnotatedObject], target: AnnotatedObject) -> None:
        """Delete ``target`` if it is unchanged since it was read."""
        ...


class Binder(Protocol):
    """Binds pods to nodes. Each Binding has the pod's UID and resourceVersion as preconditions.

    If the outcome of a Binding is unknown, the pod is read to find out. A bind plugin must use the binder only within
    ``BindPlugin.bind`` or a task started there, and only for the pod and node of that call. The decision is checked
    again immediately before the Binding is sent.
    """

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Bind the pod. Return Success once the pod is bound to that node, otherwise a status with the reason.

        The check before the Binding runs filter plugins, and can raise their exceptions; let them propagate.
        """
        ...
