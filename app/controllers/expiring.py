"""Expires cached verdicts that are valid only until a given time.

Pods that the plugin of such a verdict refused are then evaluated again. Pods that fit a node now are activated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from app.cache.cluster import Cluster
from app.controllers.second_looks import SecondLooks
from app.framework.handle import Clock
from app.kube.core_v1 import Pod
from app.memory.recent_refusals import RecentRefusals

CHECK_SECONDS: Final = 0.1
"""Seconds between two checks. A verdict is used for at most this long after its end.

A timer for the end would be wrong after a change of the wall clock.
"""


class ExpiringVerdicts:
    """Background task that expires verdicts. It runs in every replica; only the leader has refused pods that must be
    evaluated.
    """

    def __init__(
        self, cluster: Cluster, refused: Callable[[], RecentRefusals], second_looks: SecondLooks, wall_clock: Clock
    ) -> None:
        self._cluster = cluster
        self._refused = refused
        self._second_looks = second_looks
        self._wall_clock = wall_clock

    async def run(self) -> None:
        """Expire verdicts, and queue the pods that their plugins refused for a second look, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            plugins = self._cluster.expiries.expire(self._wall_clock())
            if plugins:
                for pod in self._waiting(plugins):
                    self._second_looks.look(pod)

    def _waiting(self, plugins: frozenset[str]) -> list[Pod]:
        keys = self._refused().by_plugins(plugins)
        pods = (self._cluster.pod(*key) for key in keys)
        return [pod for pod in pods if pod is not None and not pod.node_name]
