"""One walk over all homes and the pods they are about: who counts homes and who lists them go by the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.framework.interface import WHEREABOUTS, Objects, Unreadable
from app.kube.core_v1 import Pod
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node.home import HOME, recorded_home
from plugins.sticky_node.memory import HOMES
from plugins.sticky_node.owners import Owner, Owners, Slot
from plugins.sticky_node.slots import slots

AT_HOME, ELSEWHERE, WAITING, IDLE = WHEREABOUTS

_STEP: Final = 64


class Kept(Struct, frozen=True, gc=False):
    """An owner's home, empty where it has none and a pod. ``pod``: of several the one that got furthest.

    ``waits_since``: when the oldest pod was made that has no node, as the API server has it; empty without one.
    """

    owner: Owner
    home: str
    pod: Pod | None = None
    waits_since: str = ""

    @property
    def machine(self) -> str:
        """One of ``WHEREABOUTS``."""
        if self.pod is None:
            return IDLE
        if not self.pod.node_name:
            return WAITING
        return AT_HOME if self.pod.node_name == self.home else ELSEWHERE


class Walk:
    """Goes from the pods that may have an owner to the owners: each time anew.

    What is remembered of owners that are gone is a walk of its own: these are homes of no machine.
    """

    def __init__(self, owners: Owners, objects: Objects) -> None:
        self._owners = owners
        self._objects = objects

    def __call__(self) -> Iterator[Kept | None]:
        """Each home once, and ``None`` after each short step. Pods and owners may come and go meanwhile."""
        seen: dict[Slot, Kept] = {}
        for number, pod in enumerate(self._owners.pods()):
            if number % _STEP == _STEP - 1:
                yield None
            if not pod.terminating:
                self._note(pod, seen)
        for number, owner in enumerate(self._recorded()):
            if number % _STEP == _STEP - 1:
                yield None
            if owner is not None and (home := recorded_home(owner)):
                found = seen.pop(owner.key, None)
                yield Kept(owner, home) if found is None else replace(found, home=home)
        for number, found in enumerate(seen.values()):
            if number % _STEP == _STEP - 1:
                yield None
            yield replace(found, home=recorded_home(found.owner))

    def remembered(self) -> Iterator[Kept | None]:
        """The homes of owners that are not there any more, and ``None`` after each short step."""
        for number, home in enumerate(self._objects.every(HOMES) if self._owners.remembers() else ()):
            if number % _STEP == _STEP - 1:
                yield None
            with suppress(Unreadable):  # it is there
                owner = self._owners.gone(home)
                if owner is not None:
                    yield Kept(owner, home.node)

    def _note(self, pod: Pod, seen: dict[Slot, Kept]) -> None:
        owner = None
        with suppress(Unreadable):
            owner = self._owners.of(pod)
        if not isinstance(owner, Owner):
            return
        known = seen.get(owner.key)
        if known is None or known.pod is None or _rank(owner, pod) > _rank(owner, known.pod):
            since = "" if known is None else known.waits_since
            known = seen[owner.key] = Kept(owner, "", pod, since)
        if not pod.node_name:
            since = min(pod.created, known.waits_since) if known.waits_since else pod.created
            seen[owner.key] = replace(known, waits_since=since)

    def _recorded(self) -> Iterator[Owner | None]:
        """Every owner, once for each of its homes; one that has none may have one by what is remembered of its name.

        ``None`` in place of each object that keeps no homes.
        """
        for kind in self._owners.keepers():
            per_ordinal = self._owners.is_per_ordinal(kind)
            for found in self._owners.every(kind):
                if found is None:
                    yield None
                    continue
                for slot in slots(found.annotations, HOME, per_ordinal=per_ordinal) or ("",):
                    owner = Owner(kind, found, slot, found)
                    yield owner if recorded_home(owner) else self._owners.keeper(kind, found, slot)


def _rank(owner: Owner, pod: Pod) -> int:
    """How far a pod got. Where KubeVirt says which node its machine is on, the pod there is the machine."""
    if not pod.node_name:
        return 0
    machine = owner.controller
    if isinstance(machine, VirtualMachineInstance) and machine.node_name == pod.node_name:
        return 3
    return 2 if pod.node_name == recorded_home(owner) else 1
