"""Claims of KubeVirt machines that migrated, or that ran before Homeport came: their homes follow or are adopted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from app.framework.handle import Handle
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node.annotations import (
    HOME,
    HOME_AFTER,
    HOME_REPLACES,
    Claim,
    ClaimSource,
    home_in,
    home_pod,
    is_confirmed,
    is_own,
    recorded_home,
)
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.background import ResumableIteration, Steps, WriteBudget
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.pods import ActivePods, is_target
from plugins.sticky_node.recorder import PendingHomes, Recorder


class MigratedHomes:
    """Finds KubeVirt machines that migrated, or that run without a home. ``is_off``: whether the policy is ``off``."""

    def __init__(
        self,
        args: StickyNodeArgs,
        owners: Owners,
        active: ActivePods,
        pending: PendingHomes,
        recorder: Recorder,
        budget: WriteBudget,
        handle: Handle,
        is_off: Callable[[Owner, Pod], bool],
    ) -> None:
        self._args = args
        self._owners = owners
        self._active = active
        self._pending = pending
        self._recorder = recorder
        self._budget = budget
        self._is_off = is_off
        self._handle = handle
        self._settled: dict[str, tuple[VirtualMachineInstance, Owner]] = {}
        self._iteration = ResumableIteration(handle.objects, (VIRTUAL_MACHINE_INSTANCES,), self._settled)

    async def all(self) -> bool:
        """Record the claims of running machines; return ``False`` if a machine's pod or node is not in the snapshot
        yet.
        """
        complete, steps = True, Steps(self._handle.timing.sleep)
        for _, machine in self._iteration:
            await steps()
            if machine is None or not machine.node_name or self._is_settled(machine):
                continue
            pod = self._active.of(machine)
            if pod is None or not self._handle.objects.has_node(machine.node_name):
                complete = False
                continue
            try:
                claim = self._claim(machine, pod)
            except Unreadable:
                complete = False
                continue
            if claim is not None:
                key = " ".join(claim.owner.key)
                complete &= await self._budget.of_owner(key, partial(self._recorder.write_claim, claim))
        return complete

    def _is_settled(self, machine: VirtualMachineInstance) -> bool:
        """Return whether the machine and its owner are unchanged since nothing had to be done."""
        known, owner = self._settled.get(machine.uid, (None, None))
        if known is not machine or owner is None:
            return False
        with suppress(Unreadable):
            return self._handle.objects.get(owner.kind, *owner.obj.key) is owner.obj
        return False

    def _claim(self, machine: VirtualMachineInstance, pod: Pod) -> Claim | None:
        owner = self._owners.of(pod) if self._handle.profile.serves(pod.spec.scheduler_name) else None
        if not isinstance(owner, Owner) or self._pending.of(pod) is not None or self._is_off(owner, pod):
            return None
        home, heard = recorded_home(owner), home_pod(owner)
        if self._args.follow_migration and heard != pod.uid and _has_left(machine, pod, owner):
            return Claim(pod, machine.node_name, owner, heard, True, home, ClaimSource.MIGRATION)
        if not home and not heard and self._args.adopt and not is_own(owner.obj, owner.slot):
            return Claim(pod, machine.node_name, owner, heard, True, by=ClaimSource.ADOPTION)
        if home_in(owner.obj, owner.slot):
            self._settled[machine.uid] = (machine, owner)
        return None


def _has_left(machine: VirtualMachineInstance, pod: Pod, owner: Owner) -> bool:
    """Return true if the machine has completed a migration away from its home.

    KubeVirt updates ``nodeName`` last. ``migrationState.completed`` does not help, because it is true for failed
    migrations, too.
    """
    source = machine.moved_from
    if not source or not machine.node_name == machine.moved_to != source:
        return False
    home = recorded_home(owner)
    return (home == source and is_confirmed(owner.obj, owner.slot)) or _was_to_be(home, source, pod, owner)


def _was_to_be(home: str, source: str, pod: Pod, owner: Owner) -> bool:
    """Return true if the source node was about to become the home when the migration began, and no other home was
    recorded since.

    The target's Binding carries that claim (see ``pre_bind``), because the pod that made the claim was deleted.
    """
    carried = [pod.annotations.get(key, "") for key in (HOME, HOME_AFTER, HOME_REPLACES)]
    return is_target(pod) and carried == [source, home_pod(owner), home]
