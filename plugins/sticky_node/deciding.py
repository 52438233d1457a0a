"""What happens to one pod because of its home, now: the cell of the table, and until when it holds."""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from app.framework.interface import Clock
from app.kube.core_v1 import Pod
from plugins.sticky_node.active import is_target
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.clocks import Clocks
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.policies import Applied, Policies
from plugins.sticky_node.standing import Standing, Standings
from plugins.sticky_node.table import TABLE, Action, Policy, Reason, State


class Decision(Struct, frozen=True):
    """``since``: since when the clock of a grace runs, ``ends_at``: until when, both in seconds since 1970 and only
    where one runs. ``over``: it is over.
    """

    home: str
    applied: Applied
    standing: Standing
    action: Action
    reason: Reason = Reason.NOT_HOME
    since: float | None = None
    ends_at: float | None = None
    over: bool = False

    @property
    def verdict(self) -> Hashable:
        """All that the answers to filter rest on."""
        return (self.home, self.action, self.reason)

    def makes_home(self, node: str, *, failback: bool) -> bool:
        """Whether a bind to the node makes it the home: there is none, or it was passed over.

        ``failback``: a home that is passed over stays the home, unless it was given up for good.
        """
        if self.applied.policy is Policy.OFF or self.standing.state is State.TARGET or node == self.home:
            return False
        if not self.home:
            return True
        if self.action in (Action.HOME, Action.WAIT):
            return False
        return not failback or self.applied.policy is Policy.HARD


class Decider:
    """Goes by the table. ``now``: seconds since 1970."""

    def __init__(
        self, args: StickyNodeArgs, policies: Policies, standings: Standings, clocks: Clocks, now: Clock
    ) -> None:
        self._releases_gone = args.when_gone == "release"
        self._policies = policies
        self._standings = standings
        self._clocks = clocks
        self._now = now

    def of(self, owner: Owner, pod: Pod, home: str) -> Decision:
        """``home``: empty if there is none. Raises ``Unreadable``."""
        applied = self._policies.of(owner, pod)
        standing = Standing(State.NONE)
        if applied.policy is Policy.OFF or not home:
            if applied.policy is not Policy.OFF and is_target(pod):
                standing = Standing(State.TARGET)
            return Decision(home, applied, standing, Action.ALL)
        standing = self._standings.of(home, owner, pod)
        if self._is_released(applied, standing.state):
            return Decision(home, applied, standing, Action.ALL)
        cell = TABLE[standing.state][applied.policy]
        if cell.then is None:
            return Decision(home, applied, standing, cell.action, cell.reason)
        since = self._since(owner, pod, home, standing.state)
        if since is None:
            return Decision(home, applied, standing, cell.action, cell.reason)
        ends_at = since + applied.grace
        if self._now() < ends_at:
            return Decision(home, applied, standing, cell.action, cell.reason, since, ends_at)
        return Decision(home, applied, standing, cell.then, Reason.NOT_HOME, since, ends_at, over=True)

    def holds(self, owner: Owner, home: str, applied: Applied, state: State) -> bool:
        """Whether a pod waits while its home takes none; of a usable one, whether it would. Begins no clock."""
        if applied.policy is Policy.OFF or not home or self._is_released(applied, state):
            return False
        cell = TABLE[State.AWAY if state is State.USABLE else state][applied.policy]
        if cell.action is not Action.WAIT or cell.then is None or state is State.USABLE:
            return cell.action is Action.WAIT
        since = self._clocks.known(owner, home)
        return since is None or self._now() < since + applied.grace

    def _is_released(self, applied: Applied, state: State) -> bool:
        return state is State.GONE and applied.policy is Policy.HARD and self._releases_gone

    def _since(self, owner: Owner, pod: Pod, home: str, state: State) -> float | None:
        return self._clocks.since_pod(owner, pod) if state is State.USABLE else self._clocks.since(owner, home)
