"""Keeps pods off racks that are drained, and writes onto each pod which rack it came to.

A rack is a custom resource; a node says by a label on which rack it stands.
"""

from __future__ import annotations

from typing import Final, final

from homeport.plugin import (
    SUCCESS,
    CycleState,
    FilterPlugin,
    Handle,
    Needs,
    NodeInfo,
    PluginArgs,
    PluginSpec,
    Pod,
    PreBindPlugin,
    Reads,
    Status,
    partial_kind,
    unresolvable,
)

NAME: Final = "RackLabels"
RACKS: Final = partial_kind("racks.example/v1", "Rack")
DRAINED: Final = unresolvable("node(s) stand on a rack that is drained")


class RackLabelsArgs(PluginArgs):
    """``label``: where a node names its rack."""

    label: str = "racks.example/rack"


@final
class RackLabels(FilterPlugin, PreBindPlugin):
    """A rack without an object is nobody's concern."""

    def __init__(self, args: RackLabelsArgs, handle: Handle) -> None:
        self._label = args.label
        self._objects = handle.objects
        self._counts = handle.counts

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        rack = self._objects.get(RACKS, "", node.node.labels.get(self._label, ""))
        return DRAINED if rack is not None and "racks.example/drained" in rack.labels else SUCCESS

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        rack = self._counts.values(self._label).get(node_name)
        if rack is not None:
            state.annotations[self._label] = rack
        return SUCCESS


def _needs(args: RackLabelsArgs) -> Needs:
    return Needs(kinds=(RACKS,))


SPEC: Final = PluginSpec(NAME, RackLabelsArgs, RackLabels, reads=Reads.NODE, needs=_needs)
