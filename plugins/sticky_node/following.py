"""A machine that has migrated takes its home along, if it lived at home; one that never had any gets where it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from app.framework.interface import Handle, Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node.active import ActivePods, is_target
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.attempts import Attempts
from plugins.sticky_node.home import (
    HOME,
    HOME_AFTER,
    HOME_REPLACES,
    By,
    Claim,
    home_in,
    home_pod,
    is_own,
    is_sealed,
    recorded_home,
)
from plugins.sticky_node.making import Making
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.recording import Recorder
from plugins.sticky_node.steps import Steps
from plugins.sticky_node.turns import Turns


class Following:
    """Goes over KubeVirt's machines. ``is_off``: whether a machine's policy is ``off``, so that nothing is recorded."""

    def __init__(
        self,
        args: StickyNodeArgs,
        owners: Owners,
        active: ActivePods,
        making: Making,
        recorder: Recorder,
        attempts: Attempts,
        handle: Handle,
        is_off: Callable[[Owner, Pod], bool],
    ) -> None:
        self._args = args
        self._owners = owners
        self._active = active
        self._making = making
        self._recorder = recorder
        self._attempts = attempts
        self._is_off = is_off
        self._objects = handle.objects
        self._serves = handle.serves
        self._sleep = handle.sleep
        self._settled: dict[str, tuple[VirtualMachineInstance, Owner]] = {}
        self._turns = Turns(handle.objects, (VIRTUAL_MACHINE_INSTANCES,))
        self._has_machines = VIRTUAL_MACHINE_INSTANCES in owners.controllers()

    async def all(self) -> bool:
        """Claims of machines that run, each heard once. ``False``: something of a machine is not in the picture yet."""
        if not self._has_machines:
            return True
        complete, steps = True, Steps(self._sleep)
        seen: set[str] = set()
        for _, machine in self._turns:
            await steps()
            if machine is None:
                continue
            seen.add(machine.uid)
            if not machine.node_name or self._is_settled(machine):
                continue
            pod = self._active.of(machine)
            if pod is None or not self._objects.has_node(machine.node_name):
                complete = False
                continue
            try:
                claim = self._claim(machine, pod)
            except Unreadable:
                complete = False
                continue
            if claim is not None:
                key = " ".join(claim.owner.key)
                complete &= await self._attempts.of_owner(key, partial(self._recorder.hear, claim))
        for uid in self._settled.keys() - seen:
            del self._settled[uid]
        return complete

    def _is_settled(self, machine: VirtualMachineInstance) -> bool:
        """Whether it and its owner are as they were when nothing was to be done."""
        known, owner = self._settled.get(machine.uid, (None, None))
        if known is not machine or owner is None:
            return False
        with suppress(Unreadable):
            return self._objects.get(owner.kind, *owner.found.key) is owner.found
        return False

    def _claim(self, machine: VirtualMachineInstance, pod: Pod) -> Claim | None:
        owner = self._owners.of(pod) if self._serves(pod.spec.scheduler_name) else None
        if not isinstance(owner, Owner) or self._making.of(pod) is not None or self._is_off(owner, pod):
            return None
        home, heard = recorded_home(owner), home_pod(owner)
        if self._args.follow_migration and heard != pod.uid and _has_left(machine, pod, owner):
            return Claim(pod, machine.node_name, owner, heard, True, home, By.MIGRATION)
        if not home and not heard and self._args.adopt and not is_own(owner.found, owner.slot):
            return Claim(pod, machine.node_name, owner, heard, True, by=By.ADOPTION)
        if home_in(owner.found, owner.slot):
            self._settled[machine.uid] = (machine, owner)
        return None


def _has_left(machine: VirtualMachineInstance, pod: Pod, owner: Owner) -> bool:
    """Return true if the machine migrated away from its home, which was its home before: KubeVirt sets the node last.

    ``migrationState.completed`` does not help: it is true of failed migrations, too.
    """
    source = machine.moved_from
    if not source or not machine.node_name == machine.moved_to != source:
        return False
    home = recorded_home(owner)
    return (home == source and is_sealed(owner.found, owner.slot)) or _was_to_be(home, source, pod, owner)


def _was_to_be(home: str, source: str, pod: Pod, owner: Owner) -> bool:
    """Return true if the source was about to become the home when the migration began, and nothing came in between.

    The target's Binding carries that claim, see ``pre_bind``: the pod that made it is gone.
    """
    carried = [pod.annotations.get(key, "") for key in (HOME, HOME_AFTER, HOME_REPLACES)]
    return is_target(pod) and carried == [source, home_pod(owner), home]
