"""Interface through which plugins and the core record Events (``events.k8s.io/v1``), which ``kubectl describe`` shows.

Recording returns at once and never fails. The recorder decides which Events it writes, when and how often.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from app.kube.kinds import PODS, Kind, KubeObject

EventType = Literal["Normal", "Warning"]


class Reference(Struct, frozen=True):
    """Reference to an object of the cluster. ``namespace`` is empty for a cluster-scoped object."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    @classmethod
    def to(cls, kind: Kind[Any], target: KubeObject) -> Reference:
        """Return a reference to an object of the snapshot."""
        return cls(kind.api_version, kind.kind, *target.key, target.uid)

    @classmethod
    def to_pod(cls, pod: KubeObject) -> Reference:
        return cls.to(PODS, pod)


class EventRecorder(Protocol):
    """Records Events on objects. A plugin can call it anywhere, because it never blocks the event loop."""

    def event(
        self, regarding: Reference, related: Reference | None, kind: EventType, reason: str, action: str, note: str
    ) -> None:
        """Record an Event; return at once and never raise. Parameters are in the order of Kubernetes' ``Eventf``.

        ``reason`` is the cause and ``action`` the action taken, both in UpperCamelCase and at most 128 characters.
        Events that differ in ``note`` alone are counted as one with the first note, so use ``reason`` to tell them
        apart.
        ``note`` is a sentence, truncated at 1,024 bytes.
        """
        ...


class NoEvents:
    """No-op ``EventRecorder``."""

    def event(
        self, regarding: Reference, related: Reference | None, kind: EventType, reason: str, action: str, note: str
    ) -> None:
        return


NO_EVENTS: Final = NoEvents()
