"""How many homes cannot be used now, why, and on which nodes most of them are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from app.framework.interface import Figure, Unreadable
from plugins.sticky_node.home import HOME, recorded_home
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.policies import Policies
from plugins.sticky_node.slots import slots
from plugins.sticky_node.standing import Standings
from plugins.sticky_node.table import Policy, State

STANDINGS: Final = tuple(
    it.value.replace(" ", "_") for it in (State.USABLE, State.AWAY, State.LEAVING, State.GONE, State.OTHER_MACHINE)
)
MOST_NODES: Final = 10
OTHERS: Final = "(others)"
NO_NODE: Final = "(gone)"
"""Of homes that are no node: what stands there, anybody may have written."""

_STEP: Final = 32
_BY_STANDING: Final = (
    "Homes by what their node is like now: usable, away, leaving, gone or other_machine; and by their owner's policy."
)
_BY_NODE: Final = (
    f"Homes that are not usable, by node: the {MOST_NODES} nodes with most of them, {OTHERS}, and {NO_NODE} for those "
    "that are no node."
)


class StandingCensus:
    """Counts anew each time, from the owners. Of a policy it knows what is said of the owner, not what a pod says."""

    def __init__(self, owners: Owners, standings: Standings, policies: Policies) -> None:
        self._owners = owners
        self._standings = standings
        self._policies = policies

    def figures(self) -> Iterator[Figure | None]:
        """``homes_by_standing`` and ``homes_unusable``."""
        counts: Counter[tuple[str, str]] = Counter()
        nodes: Counter[str] = Counter()
        for number, it in enumerate(self._homes()):
            if number % _STEP == _STEP - 1:
                yield None
            if it is None:
                continue
            owner, home = it
            with suppress(Unreadable):
                policy = self._policies.of(owner).policy
                state = self._standings.of_node(home, owner).state
                counts[state.value.replace(" ", "_"), policy.value] += 1
                if state is not State.USABLE:
                    nodes[NO_NODE if state is State.GONE else home] += 1
        for standing in STANDINGS:
            for policy in Policy:
                labels = {"standing": standing, "policy": policy.value}
                yield Figure("homes_by_standing", _BY_STANDING, counts[standing, policy.value], labels)
        for node, count in _bounded(nodes).items():
            yield Figure("homes_unusable", _BY_NODE, count, {"node": node})

    def _homes(self) -> Iterator[tuple[Owner, str] | None]:
        """Beside the homes ``None`` for each object that was looked at, whether it has any or keeps none."""
        for kind in self._owners.keepers():
            per_ordinal = self._owners.is_per_ordinal(kind)
            for found in self._owners.every(kind):
                yield None
                if found is None:
                    continue
                for slot in slots(found.annotations, HOME, per_ordinal=per_ordinal):
                    owner = Owner(kind, found, slot, found)
                    home = recorded_home(owner)
                    if home:
                        yield owner, home


def _bounded(nodes: Mapping[str, int]) -> dict[str, int]:
    """The nodes with most, by name where they have as many; the sum of the rest. Always with those of no node."""
    named = sorted((it for it in nodes if it != NO_NODE), key=lambda it: (-nodes[it], it))
    rest = sum(nodes[it] for it in named[MOST_NODES:])
    return {**{it: nodes[it] for it in named[:MOST_NODES]}, OTHERS: rest, NO_NODE: nodes.get(NO_NODE, 0)}
