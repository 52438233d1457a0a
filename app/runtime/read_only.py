"""Read-only mode for plugin calls that answer a query: their events, writes, binds and activations have no effect.

Homeport also calls plugins, including their filters, to explain a pod and to compute metrics. Within ``read_only()``,
and in tasks that a plugin starts there, Events are dropped, writes and binds are refused, and no pod is activated. In
this mode, a plugin must not change its own state; it can check ``is_read_only`` (``Handle.is_asked``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from app.framework.activation import Activate
from app.framework.events import EventRecorder, EventType, Reference
from app.framework.objects import Binder, Writer
from app.framework.status import Status, error
from app.kube.core_v1 import Pod
from app.kube.kinds import AnnotatedObject, Kind
from app.runtime.guard import Guard

REFUSED: Final = "a read-only request changes nothing"
"""Error message of refused writes and binds."""

_READ_ONLY: Final = ContextVar("read only", default=False)
_END: Final = object()
"""Value that no plugin can yield, returned by ``next`` at the end of the steps."""


@contextmanager
def read_only() -> Iterator[None]:
    """Make plugin calls of the current task read-only. Do not ``yield`` from a generator within this context, because
    other code that runs until the next step would be read-only, too.
    """
    token = _READ_ONLY.set(True)
    try:
        yield
    finally:
        _READ_ONLY.reset(token)


def is_read_only() -> bool:
    """Return True if the current call is read-only (within ``read_only``)."""
    return _READ_ONLY.get()


def read_only_steps(guard: Guard, name: str, point: str, ask: Callable[[], Iterable[object]]) -> Iterator[object]:
    """Call the plugin's method ``ask`` and yield the items that it returns. Each step runs within ``read_only``. Raises
    ``PluginError``.
    """
    with read_only():
        steps = guard.call(name, point, lambda: iter(ask()))
    while True:
        with read_only():
            item = guard.call(name, point, next, steps, _END)
        if item is _END:
            return
        yield item


class ReadOnlyEvents:
    """``EventRecorder`` that drops events within ``read_only``."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def event(
        self, regarding: Reference, related: Reference | None, kind: EventType, reason: str, action: str, note: str
    ) -> None:
        if not _READ_ONLY.get():
            self._recorder.event(regarding, related, kind, reason, action, note)


class ReadOnlyWriter:
    """``Writer`` that refuses writes within ``read_only``."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def annotate(
        self, kind: Kind[AnnotatedObject], written: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        """Write annotations like the wrapped writer. Raises ``PermissionError`` within ``read_only``."""
        if _READ_ONLY.get():
            raise PermissionError(REFUSED)
        await self._writer.annotate(kind, written, annotations)

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        if _READ_ONLY.get():
            raise PermissionError(REFUSED)
        await self._writer.create(kind, namespace, name, spec)

    async def change(self, kind: Kind[AnnotatedObject], written: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        if _READ_ONLY.get():
            raise PermissionError(REFUSED)
        await self._writer.change(kind, written, spec)

    async def delete(self, kind: Kind[AnnotatedObject], written: AnnotatedObject) -> None:
        if _READ_ONLY.get():
            raise PermissionError(REFUSED)
        await self._writer.delete(kind, written)


class NoWriter:
    """``Writer`` and ``Binder`` that refuse all writes and binds, for plugins that only answer queries."""

    async def annotate(
        self, kind: Kind[AnnotatedObject], written: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        """Refuse the write. Raises ``PermissionError``, like all writes here."""
        raise PermissionError(REFUSED)

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        raise PermissionError(REFUSED)

    async def change(self, kind: Kind[AnnotatedObject], written: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        raise PermissionError(REFUSED)

    async def delete(self, kind: Kind[AnnotatedObject], written: AnnotatedObject) -> None:
        raise PermissionError(REFUSED)

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Return an Error."""
        return error(REFUSED)


class ReadOnlyBinder:
    """``Binder`` that returns an error within ``read_only``."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        return error(REFUSED) if _READ_ONLY.get() else await self._binder.bind(pod, node_name, annotations)


class ReadOnlyActivate:
    """``Activate`` that has no effect within ``read_only``."""

    def __init__(self, activate: Activate) -> None:
        self._activate = activate

    def __call__(self, pods: Iterable[Pod]) -> None:
        if not _READ_ONLY.get():
            self._activate(pods)
