"""Table of home states and policies, the policy that applies to a pod's home, and the decision for one pod.

Filter, Events, ``explain`` and `docs/homes.md` all use this table, and every cell has a test.

The most specific policy takes precedence, in this order: the owner's annotation ``homeport.dev/policy``, the same
annotation of the pod (set by its template), the first matching namespace rule, the owner rule, the default. An
annotation that does not name a policy is ignored.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Self

from msgspec import Struct

from app.framework.handle import Clock
from app.framework.objects import Objects
from app.homes.protocol import POLICY, Policy, State
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES, Kind
from app.kube.selectors import Selector
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.grace import GraceClocks
from plugins.sticky_node.home_state import HomeState, HomeStates
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.pods import is_target


class Action(StrEnum):
    """Effect of a ``Decision`` on filter's result."""

    ALL = "all pass"
    NOT_HOME = "all but home pass"
    HOME = "only home passes"
    TRY_HOME = "home is tried first"
    VOLUME = "the volume's nodes pass"
    WAIT = "the pod waits"


class Reason(StrEnum):
    """Reason for refusing a node. The texts are constant; Events and ``explain`` have the names and times."""

    NOT_HOME = "node(s) were not the pod's home"
    AWAY = "node(s) were refused, because the pod's home takes no pods now"
    GONE = "node(s) were refused, because the pod's home is gone"
    GRACE = "node(s) were refused, because the grace period of the pod's home is not over"


class Cell(Struct, frozen=True):
    """Decision for one home state and policy. ``then``: action after the grace period; ``None`` if there is none."""

    action: Action
    reason: Reason = Reason.NOT_HOME
    then: Action | None = None


_ALL: Final = Cell(Action.ALL)
_WAITS_GRACE: Final = Cell(Action.WAIT, Reason.GRACE, Action.NOT_HOME)
TABLE: Final[Mapping[State, Mapping[Policy, Cell]]] = {
    State.NONE: {Policy.HARD: _ALL, Policy.SOFT: _ALL, Policy.GRACE: _ALL},
    State.TARGET: {Policy.HARD: _ALL, Policy.SOFT: _ALL, Policy.GRACE: _ALL},
    State.VOLUME_ELSEWHERE: {
        Policy.HARD: Cell(Action.WAIT),
        Policy.SOFT: Cell(Action.VOLUME),
        Policy.GRACE: Cell(Action.VOLUME),
    },
    State.OTHER_MACHINE: {Policy.HARD: Cell(Action.WAIT, Reason.GONE), Policy.SOFT: _ALL, Policy.GRACE: _ALL},
    State.GONE: {
        Policy.HARD: Cell(Action.WAIT, Reason.GONE),
        Policy.SOFT: _ALL,
        Policy.GRACE: Cell(Action.WAIT, Reason.GRACE, Action.ALL),
    },
    State.LEAVING: {
        Policy.HARD: Cell(Action.WAIT, Reason.AWAY),
        Policy.SOFT: Cell(Action.NOT_HOME),
        Policy.GRACE: Cell(Action.NOT_HOME),
    },
    State.AWAY: {
        Policy.HARD: Cell(Action.WAIT, Reason.AWAY),
        Policy.SOFT: Cell(Action.NOT_HOME),
        Policy.GRACE: _WAITS_GRACE,
    },
    State.USABLE: {
        Policy.HARD: Cell(Action.HOME),
        Policy.SOFT: Cell(Action.TRY_HOME),
        Policy.GRACE: Cell(Action.HOME, Reason.NOT_HOME, Action.TRY_HOME),
    },
}

STATES: Final[Mapping[State, str]] = {
    State.NONE: "there is none yet, it was released, or the policy is `off`",
    State.TARGET: "the pod is the target of a migration or an evacuation",
    State.VOLUME_ELSEWHERE: "a bound volume of the pod cannot be reached from there",
    State.OTHER_MACHINE: "the node of that name is another machine (with `identity: machine`)",
    State.GONE: "there is no such node",
    State.LEAVING: "its node is being taken away for good",
    State.AWAY: "its node is there and takes no pods now",
    State.USABLE: "its node takes pods",
}
"""Description of each state in ``TABLE``, in the same order."""


_BY_NAME: Final = {it.value: it for it in Policy}


class AppliedPolicy(Struct, frozen=True):
    """Policy that applies to an owner. ``grace``: seconds. ``source``: origin of the policy, as text for a user."""

    policy: Policy
    grace: float
    source: str


class _Rule(Struct, frozen=True):
    selector: Selector
    applied: AppliedPolicy


class Policies:
    """Finds the policy that applies to an owner, with or without one of its pods."""

    def __init__(self, args: StickyNodeArgs, objects: Objects) -> None:
        self._objects = objects
        self._grace = args.grace_period
        self._of_namespaces = [_rule(number, args) for number in range(len(args.namespaces))]
        self._of_kinds: dict[tuple[str, str], AppliedPolicy] = {
            rule.pair: AppliedPolicy(rule.policy, args.grace_period, f"owners: {rule.kind}")
            for rule in args.owners
            if rule.policy is not None
        }
        self._default = AppliedPolicy(args.policy, args.grace_period, "default")
        self._seen: tuple[int, dict[str, AppliedPolicy | None]] = (-1, {})

    def of(self, owner: Owner, pod: Pod | None = None) -> AppliedPolicy:
        """Return the policy for the owner. ``pod``: one of its pods, if any. Raises ``Unreadable``."""
        for source, there in (("owner", owner.obj.annotations), ("pod", pod.annotations if pod else {})):
            policy = _BY_NAME.get(there.get(POLICY, ""))
            if policy is not None:
                return AppliedPolicy(policy, self._grace, source)
        applied = self._of_namespace(owner.obj.namespace) if self._of_namespaces else None
        if applied is None:
            applied = self._of_kinds.get((owner.kind.api_version, owner.kind.kind), self._default)
        return applied

    def is_off(self, owner: Owner, pod: Pod | None = None) -> bool:
        """Return true if the policy is ``off``. Without a pod, pod annotations are ignored. Raises ``Unreadable``."""
        return self.of(owner, pod).policy is Policy.OFF

    def _of_namespace(self, name: str) -> AppliedPolicy | None:
        version = self._objects.version(NAMESPACES)
        if version != self._seen[0]:
            self._seen = (version, {})
        known = self._seen[1]
        if name not in known:
            namespace = self._objects.get(NAMESPACES, "", name)
            known[name] = next(
                (it.applied for it in self._of_namespaces if namespace and it.selector.matches(namespace.labels)), None
            )
        return known[name]


def kinds_of_policies(args: StickyNodeArgs) -> Sequence[Kind[Any]]:
    """Return the kinds that the policy rules read: Namespaces if there are namespace rules, else none."""
    return (NAMESPACES,) if args.namespaces else ()


def unknown_policy(owner: Owner) -> str:
    """Return the value of the owner's policy annotation if it is not a policy; empty otherwise."""
    value = owner.obj.annotations.get(POLICY, "")
    return "" if value in _BY_NAME else value


def _rule(number: int, args: StickyNodeArgs) -> _Rule:
    rule = args.namespaces[number]
    grace = args.grace_period if rule.grace_period is None else rule.grace_period
    return _Rule(rule.selector, AppliedPolicy(rule.policy, grace, f"namespaces[{number}]"))


class Decision(Struct, frozen=True):
    """Decision for one pod. ``home``: empty if there is none. ``over``: true if the grace period has ended.

    ``since`` and ``ends_at``: start and end of the grace period, in seconds since 1970; ``None`` if it has not started,
    or if there is none.
    """

    home: str
    applied: AppliedPolicy
    home_state: HomeState
    action: Action
    reason: Reason = Reason.NOT_HOME
    since: float | None = None
    ends_at: float | None = None
    over: bool = False

    def clone(self) -> Self:
        return self

    @property
    def verdict(self) -> Hashable:
        """Part of the decision that filter's result depends on."""
        return (self.home, self.action, self.reason)

    def makes_home(self, node: str, *, failback: bool) -> bool:
        """Return true if a bind to the node makes it the home. It does if there is no home yet, or if the decision
        allowed other nodes.

        The result is false if the policy is ``off``, if the pod is the target of a migration, or if the node is the
        home already. ``failback``: true to keep an existing home. The hard policy still replaces it, because it allows
        other nodes only after the home was released.
        """
        if self.applied.policy is Policy.OFF or self.home_state.state is State.TARGET or node == self.home:
            return False
        if not self.home:
            return True
        if self.action in (Action.HOME, Action.WAIT):
            return False
        return not failback or self.applied.policy is Policy.HARD


class Decider:
    """Looks up decisions in the table. ``now``: returns seconds since 1970."""

    def __init__(
        self, args: StickyNodeArgs, policies: Policies, home_states: HomeStates, clocks: GraceClocks, now: Clock
    ) -> None:
        self._releases_gone = args.when_gone == "release"
        self._policies = policies
        self._home_states = home_states
        self._clocks = clocks
        self._now = now

    def of(self, owner: Owner, pod: Pod, home: str) -> Decision:
        """Return the decision for the pod, and start the home's grace period if necessary.

        ``home``: empty if there is none. Raises ``Unreadable``.
        """
        applied = self._policies.of(owner, pod)
        home_state = HomeState(State.NONE)
        if applied.policy is Policy.OFF or not home:
            if applied.policy is not Policy.OFF and is_target(pod):
                home_state = HomeState(State.TARGET)
            return Decision(home, applied, home_state, Action.ALL)
        home_state = self._home_states.of(home, owner, pod)
        if self._is_released(applied, home_state.state):
            return Decision(home, applied, home_state, Action.ALL)
        cell = TABLE[home_state.state][applied.policy]
        if cell.then is None:
            return Decision(home, applied, home_state, cell.action, cell.reason)
        since = self._since(owner, pod, home, home_state.state)
        if since is None:
            return Decision(home, applied, home_state, cell.action, cell.reason)
        ends_at = since + applied.grace
        if self._now() < ends_at:
            return Decision(home, applied, home_state, cell.action, cell.reason, since, ends_at)
        return Decision(home, applied, home_state, cell.then, Reason.NOT_HOME, since, ends_at, over=True)

    def holds(self, owner: Owner, home: str, applied: AppliedPolicy, state: State) -> bool:
        """Return true if a pod waits for an unusable home, or would wait if a usable home became ``AWAY``.

        Starts no grace period.
        """
        if applied.policy is Policy.OFF or not home or self._is_released(applied, state):
            return False
        cell = TABLE[State.AWAY if state is State.USABLE else state][applied.policy]
        if cell.action is not Action.WAIT or cell.then is None or state is State.USABLE:
            return cell.action is Action.WAIT
        since = self._clocks.known(owner, home)
        return since is None or self._now() < since + applied.grace

    def _is_released(self, applied: AppliedPolicy, state: State) -> bool:
        return state is State.GONE and applied.policy is Policy.HARD and self._releases_gone

    def _since(self, owner: Owner, pod: Pod, home: str, state: State) -> float | None:
        return self._clocks.since_pod(owner, pod) if state is State.USABLE else self._clocks.since(owner, home)


def is_held(decision: Decision) -> bool:
    """Return true if the pod is restricted to its home and the home is usable."""
    return decision.action is Action.HOME and decision.home_state.state is State.USABLE
