"""Pods that Homeport never evicts, neither for a preemption (``preemption: Own``) nor in the plan of ``rebalance``."""

from __future__ import annotations

from typing import Final

from app.homes.lists import HomeLists
from app.homes.protocol import Policy
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.runtime.framework import Framework

NEVER: Final = f"{ANNOTATION_DOMAIN}never-evict"
"""Annotation of pods that are never evicted. Its value does not matter, except that ``false`` has no effect."""

_CONTROLLERS: Final = {
    "DaemonSet": "a DaemonSet's pod stays on its node",
    "Node": "a static pod stays on its node",
    "VirtualMachineInstance": "a virtual machine is not evicted",
}
_LAUNCHER: Final = ("kubevirt.io", "virt-launcher")


def why_never_evicted(homes: HomeLists, framework: Framework | None, pod: Pod) -> str:
    """Return why the pod is never evicted; empty if it can be evicted.

    ``framework``: framework of the pod's profile; ``None`` if the pod has no profile. Raises ``PluginError``.
    """
    if pod.owner is not None and pod.owner.kind in _CONTROLLERS:
        return _CONTROLLERS[pod.owner.kind]
    if pod.labels.get(_LAUNCHER[0]) == _LAUNCHER[1]:
        return _CONTROLLERS["VirtualMachineInstance"]
    if pod.annotations.get(NEVER, "false") != "false":
        return f"the annotation {NEVER} forbids it"
    home = None if framework is None else homes.home_of(framework, pod)
    return "it has a hard home" if home is not None and home.node and home.policy is Policy.HARD else ""
