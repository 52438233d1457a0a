"""Second looks: a refused pod is tried again if the refusal rested on a picture a moment behind the scheduler's.

kube-scheduler may see an event, wake a pod and ask about it before the event reaches Homeport. It wakes the pod only
once for it, so a refusal on the older state would last until another event, or for five minutes. A moment later the
event is here: if it changed what the refusal rests on, and a node passes now, the pod is activated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final

from app.controllers.pacing import LOOK_SECONDS
from app.controllers.unshown import elsewhere
from app.framework.activation import Activate
from app.framework.counts import Unprepared
from app.kube.core_v1 import Pod
from app.runtime.guard import PluginError
from app.verbs.context import VerbContext

DELAY_SECONDS: Final = 0.25
"""Time after a refusal within which the events arrive that the scheduler knew of."""

_MOST: Final = 4096
"""Maximum number of pods that are looked at again; others wait for the scheduler."""


class SecondLooks:
    """Receives every refusal. Nodes are looked at for one pod at a time."""

    def __init__(self, context: VerbContext, activate: Activate) -> None:
        self._context = context
        self._activate = activate
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._changed: asyncio.Queue[Pod] = asyncio.Queue()
        """Pods to look at. Their timers are kept until then, so that each is there once."""

    def refused(self, pod: Pod) -> None:
        """Note a refusal. For a pod that was refused moments ago that costs a look into a dict."""
        if pod.uid in self._timers or len(self._timers) >= _MOST:
            return
        signatures = self._signatures(pod)
        if signatures is not None:
            later = asyncio.get_running_loop().call_later
            self._timers[pod.uid] = later(DELAY_SECONDS, self._compare, pod, signatures)

    def look(self, pod: Pod) -> None:
        """Look at a refused pod again as soon as others have been looked at."""
        if pod.uid not in self._timers and len(self._timers) < _MOST:
            later = asyncio.get_running_loop().call_later
            self._timers[pod.uid] = later(0, self._changed.put_nowait, pod)

    def _compare(self, pod: Pod, signatures: Hashable) -> None:
        if self._signatures(pod) != signatures:
            self._changed.put_nowait(pod)
        else:
            del self._timers[pod.uid]

    def _signatures(self, pod: Pod) -> Hashable | None:
        framework = self._context.framework_for(pod)
        try:
            return None if framework is None else tuple(framework.search.signatures(pod).items()) or None
        except PluginError:
            return None  # logged by the plugins' guard
        except Unprepared:
            return None  # its counts were given up: it asks for so much that others will wake the pod

    async def run(self) -> None:
        """Look at pods whose refusal no longer stands, until cancelled."""
        try:
            while True:
                pod = await self._changed.get()
                del self._timers[pod.uid]
                if await self._passes(pod):
                    self._activate((pod,))
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._changed = asyncio.Queue()

    async def _passes(self, pod: Pod) -> bool:
        """Return if the pod still waits, and a node would pass it as far as Homeport judges."""
        known = self._context.cluster.pod(*pod.key)
        framework = self._context.framework_for(pod)
        if known is None or known.uid != pod.uid or known.node_name or framework is None or self._context.problem():
            return False
        try:
            return bool(await elsewhere(self._context.cluster, framework, known))
        except PluginError:
            return False  # logged by the plugins' guard
