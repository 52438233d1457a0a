"""Events of ``events.k8s.io/v1``, as plugins and the core raise them: what a person sees with ``kubectl describe``.

Raising one returns at once and never fails. Which of them are written, when and how often, the recorder decides.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from app.kube.kinds import PODS, Kind, KubeObject

EventType = Literal["Normal", "Warning"]


class Reference(Struct, frozen=True):
    """An object of a cluster. ``namespace`` is empty for one that is in none."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    @classmethod
    def to(cls, kind: Kind[Any], found: KubeObject) -> Reference:
        """To an object of the picture."""
        return cls(kind.api_version, kind.kind, *found.key, found.uid)

    @classmethod
    def to_pod(cls, pod: KubeObject) -> Reference:
        return cls.to(PODS, pod)


class EventRecorder(Protocol):
    """Tells what happened to an object. Safe to call on the event loop wherever a plugin runs."""

    def event(
        self, regarding: Reference, related: Reference | None, kind: EventType, reason: str, action: str, note: str
    ) -> None:
        """Returns at once; never raises. In the order of ``Eventf`` of Kubernetes' recorder.

        ``reason`` and ``action`` are words in UpperCamelCase of at most 128 characters: why, and what was being done.
        Events that differ in ``note`` alone are one, with a count: what is to be told apart belongs into ``reason``.
        ``note`` is a sentence; from 1,024 bytes on it is cut.
        """
        ...


class NoEvents:
    """Implements ``EventRecorder``: there is nobody to tell."""

    def event(
        self, regarding: Reference, related: Reference | None, kind: EventType, reason: str, action: str, note: str
    ) -> None:
        return


NO_EVENTS: Final = NoEvents()
