"""Binds a pod to its node: through the API server (subresource ``binding``), or in a saved cluster."""

from __future__ import annotations

from typing import Final, final

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.points import BindPlugin
from app.framework.spec import PluginArgs, PluginSpec
from app.framework.status import Status
from app.kube.core_v1 import Pod

NAME: Final = "DefaultBinder"


class DefaultBinderArgs(PluginArgs):
    """The plugin takes no arguments."""


@final
class DefaultBinder(BindPlugin):
    """Bind plugin that calls the handle's ``Binder``.

    With a live cluster, the ``Binder`` sends the pod's UID and resourceVersion as preconditions. If the outcome is
    unknown, it reads the pod back.
    """

    def __init__(self, args: DefaultBinderArgs, handle: Handle) -> None:
        self._binder = handle.binder

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return await self._binder.bind(pod, node_name, state.annotations)


SPEC: Final = PluginSpec(NAME, DefaultBinderArgs, DefaultBinder)
