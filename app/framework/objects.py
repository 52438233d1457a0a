"""Objects of the kinds that a plugin declares: reading them, writing to them, and binding pods."""

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

    To ask for another raises ``LookupError``, and so do pods and nodes: nobody feeds them here, so that none would be
    there. A plugin lets that pass, too.

    What exists and cannot be read raises ``Unreadable`` where it is asked for. A plugin lets that pass: the verdict is
    then an Error that names the object.
    """

    def get(self, kind: Kind[Object], namespace: str, name: str) -> Object | None: ...
    def in_namespace(self, kind: Kind[Object], namespace: str) -> Collection[Object]: ...

    def every(self, kind: Kind[Object]) -> Iterator[Object]:
        """All objects of a kind that can be read, which may come and go while it is read. Never on the hot path."""
        ...

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        """Moves whenever an object of the kind changes in the namespace: a stamp for what is derived from them.

        Without a namespace (``""`` is that of kinds which have none): whenever any object of the kind does.
        """
        ...

    def changed(self, kind: Kind[Object], seen: int) -> Collection[tuple[ObjectKey, Object | None]] | None:
        """The objects of a kind that came, changed or went since ``version(kind)`` was ``seen``, as ``every`` has them.

        ``None`` for one that went. ``None`` in place of all where it is not known, as when it is first asked for: any
        of them may have changed.
        """
        ...

    def annotated_pods(self) -> Collection[Pod]:
        """Bound pods that carry annotations of our domain, terminating ones included. For repairs."""
        ...

    def by_controller(self, kind: Kind[Any]) -> Mapping[str, Mapping[str, Pod]]:
        """Pods by the UID of their controller, if it is of this kind, and by their own: waiting, assumed, bound and
        terminating ones, of any namespace. Live; to be asked for once, when the plugin is built.
        """
        ...

    def by_claim(self) -> Mapping[str, Mapping[str, Pod]]:
        """The same pods by the claims that their volumes name, ephemeral ones apart, as ``namespace/name``.

        Live; to be asked for once, when the plugin is built. Raises ``LookupError`` unless a plugin of some profile
        names ``Part.VOLUMES``.
        """
        ...

    def has_node(self, name: str) -> bool: ...

    def misses_node(self, name: str) -> bool:
        """Whether it is certain that there is no such node: one that cannot be read is there."""
        ...


class WriteConflict(Exception):
    """The object changed since it was read; the picture now holds its newest form."""


class ObjectGone(Exception):
    """The object to write to no longer exists."""


class Unreadable(Exception):
    """An object that exists and cannot be read: what rests on it cannot be said. ``key`` is ``namespace/name``."""

    def __init__(self, kind: str, key: str, cause: str) -> None:
        super().__init__(f"{kind} {key} cannot be read: {cause}")


class NotServed(OSError):
    """The API server does not know the kind: its definition is not installed."""


class Writer(Protocol):
    """The one narrow way in which a plugin writes to the cluster: annotations, and whole objects of kinds of ours.

    Everything is written under optimistic concurrency, and is in the picture when the call returns. Each raises
    ``WriteConflict``, ``ObjectGone`` or ``OSError``, of which ``NotServed`` is one.
    """

    async def annotate(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        """Set (or with ``None`` remove) annotations of ``found`` if it is unchanged since it was read."""
        ...

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        """Make an object. ``WriteConflict``: there is one of that name; ``ObjectGone``: the namespace is going."""
        ...

    async def change(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        """Give it another spec, with ``None`` for each field that goes, if it is unchanged since it was read."""
        ...

    async def delete(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> None:
        """Delete it if it is unchanged since it was read."""
        ...


class Binder(Protocol):
    """Binds pods. Owns UID and version preconditions and the reading back of unknown outcomes.

    For bind plugins: within ``BindPlugin.bind``, or a task begun there, it binds the pod and the node that this was
    called with. The decision is checked once more in the step that sends the Binding.
    """

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Success means: seen bound to that node. A rejection: the pod or the picture is not what was decided on.

        A fault that a filter plugin has in that last check comes out of here as it is; let it pass.
        """
        ...
