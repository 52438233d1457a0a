"""Snapshot and plugins that explain uses: those of the decisions, or with ``explain: complete`` usually separate ones.

They are separate if explain judges further filters; for a saved cluster, only the plugins are then separate. A decision
is the answer to a verb, such as filter or bind. The separate snapshot has all fields and kinds that kube-scheduler's
default filters read. A second feed fills it, after the feed of the decisions is complete. No verb, metric or
``/readyz`` reads the separate snapshot. So a kind that only explain reads cannot prevent a decision. If such a kind is
missing, ``not_judged`` names the filters that need it.

With the option ``fallback`` of PodTopologySpread, verdicts on this snapshot determine when a constraint becomes soft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from time import time
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.feeds.feed import Feed, FeedState
from app.kube.core_v1 import Pod
from app.kube.extras import NotDecoded
from app.kube.kinds import NAMESPACES, NODES, PERSISTENT_VOLUMES, PODS, Kind
from app.kube.meta_v1 import whole_seconds
from app.rights.permissions import group_of, guessed_plural
from app.runtime.framework import Framework
from app.runtime.profiles import DECIDING, ResolvedProfile
from app.telemetry.background import Background
from app.verbs.outcome import VerbFailure
from app.verbs.similar import similar
from app.verbs.unserved import printable

ONLY_PROFILE: Final = "explain judges only the filters of the profile: set explain: complete"
"""Reason for default filters that the profile runs only at bind or never: ``explain: profile`` leaves them out."""

_MOST_NAMED: Final = 3
"""Maximum number of unreadable objects of a kind that one reason names."""

# plugins that do not read all of their kinds for pods without volumes or devices, see ``_reads``
_OF_VOLUMES: Final = frozenset({"NodeVolumeLimits", "VolumeBinding", "VolumeRestrictions", "VolumeZone"})
_HOME: Final = "StickyNode"
_OF_DEVICES: Final = frozenset({"DynamicResources", "NodeResourcesFit"})

NOT_HERE: Final = "this Homeport does not have the plugin"
"""Reason why a filter of kube-scheduler's default profile is never judged, if its plugin is not installed."""

Judge: TypeAlias = Literal["Homeport", "kube-scheduler", "both"]
"""Program that runs a filter. ``both``: kube-scheduler runs it, and Homeport runs it again at bind."""


class ExplainedProfile(Struct, frozen=True):
    """Filters of one profile and of kube-scheduler's default profile, in the order in which they are judged.

    All fields are by plugin name. ``judges``: program that runs each filter. ``kinds``: kinds that each plugin reads
    besides pods and nodes. ``never_judged``: why explain never judges the filter.
    """

    judges: Mapping[str, Judge]
    kinds: Mapping[str, Sequence[Kind[Any]]]
    never_judged: Mapping[str, str]

    @classmethod
    def of(cls, profile: ResolvedProfile, *, complete: bool) -> ExplainedProfile:
        """Describe a profile. ``complete``: true if explain also judges filters that the profile does not run."""
        merged = profile.with_defaults()
        ours = {ref.name for point in DECIDING for ref in profile.at(point)}
        at_bind = {ref.name for point in DECIDING for ref in profile.added_at_bind(point)}
        every = dict.fromkeys(ref.name for point in DECIDING for ref in merged.at(point))
        kinds: dict[str, list[Kind[Any]]] = {}
        for use in merged.uses():
            kinds.setdefault(use.plugin, []).append(use.kind)
        lost: dict[str, str] = dict.fromkeys(merged.not_judged, NOT_HERE)
        others = [name for name in every if name not in ours] if not complete else []
        judges = {name: _judge(name, ours, at_bind) for name in (*every, *lost)}
        return cls(judges, kinds, lost | dict.fromkeys(others, ONLY_PROFILE))

    @property
    def adds_filters(self) -> bool:
        """True if explain judges filters that the profile does not run, or runs only at bind."""
        return any(judge != "Homeport" for name, judge in self.judges.items() if name not in self.never_judged)


def _judge(name: str, ours: set[str], at_bind: set[str]) -> Judge:
    if name in ours:
        return "Homeport"
    return "both" if name in at_bind else "kube-scheduler"


class ExplainSnapshot:
    """Snapshot of explain, with a framework for each profile, by the profile's name.

    ``resolved``: the profiles with all plugins that explain runs. ``frameworks``: run all filters that explain judges.
    ``deciding``: snapshot of the decisions. ``max_age``: seconds without contact for a kind, after which plugins that
    read the kind from a separate snapshot are not judged. ``saved_at``: time in seconds since 1970 at which a saved
    cluster was written. A ``cluster`` other than ``deciding`` is filled by ``feed``, which is started and stopped here.
    """

    def __init__(
        self,
        cluster: Cluster,
        feed: Feed,
        frameworks: Mapping[str, Framework],
        profiles: Mapping[str, ExplainedProfile],
        *,
        resolved: Mapping[str, ResolvedProfile],
        deciding: Cluster,
        deciding_feed: Feed,
        max_age: float,
        saved_at: float | None = None,
    ) -> None:
        self.cluster = cluster
        self.frameworks = frameworks
        self.resolved = resolved
        self._saved_at = saved_at
        self._feed = feed
        self._profiles = profiles
        self._deciding = deciding
        self._deciding_feed = deciding_feed
        self._max_age = max_age
        self._background = Background()

    @property
    def is_own(self) -> bool:
        """True if explain has a separate snapshot."""
        return self.cluster is not self._deciding

    async def start(self) -> None:
        """Begin to fill a separate snapshot once that of the decisions is complete; return without waiting for it."""
        if self.is_own:
            self._background.begin("explain snapshot", self._fill)

    async def _fill(self) -> None:
        await self._deciding_feed.complete()
        await self._feed.start()

    async def stop(self) -> None:
        await self._background.stop()
        if self.is_own:
            await self._feed.stop()

    def by(self, profile: str) -> Mapping[str, Judge]:
        """Return the program that runs each filter, by plugin name; also for filters that are not judged."""
        return self._profiles[profile].judges

    def not_judged(self, profile: str, pod: Pod | None = None) -> Mapping[str, str]:
        """Return the filters that cannot be judged now, by plugin name, each with the reason as a phrase for users.

        ``pod``: the pod to judge; ``None`` for any pod. An unreadable object is no reason for a filter that reads no
        object of its kind for ``pod``.
        """
        judges = self._profiles[profile].judges
        return {plugin: why for plugin, why in self.not_usable(profile, pod).items() if plugin in judges}

    def not_usable(self, profile: str, pod: Pod | None = None) -> Mapping[str, str]:
        """Like ``not_judged``, but include plugins that are not filters, such as DefaultPreemption."""
        known = self._profiles[profile]
        reasons = dict(known.never_judged)
        if not self.is_own and not self.cluster.unreadable:
            return reasons  # with one feed for both, data that is late or forbidden stops the decisions too
        states = self._feed.states() if self.is_own else {}
        for plugin, kinds in known.kinds.items():
            problems = [self._problem_of(kind, states.get(repr(kind))) for kind in kinds]
            problems += [self._unreadable(kind) for kind in kinds if pod is None or _reads(plugin, kind, pod)]
            if plugin not in reasons and (reason := next(filter(None, problems), "")):
                reasons[plugin] = reason
        return reasons

    def _problem_of(self, kind: Kind[Any], state: FeedState | None) -> str:
        """Return why a separate snapshot lacks current objects of a kind; empty if it has them or without ``state``."""
        resource = guessed_plural(kind)
        if state is not None and state.state == "forbidden":
            return f"no permission to list and watch {'.'.join(filter(None, (resource, group_of(kind))))}"
        if state is not None and not state.synced:
            return f"{resource}: not listed yet"
        if state is not None and state.age > self._max_age:
            return f"{resource}: no contact for {state.age:.0f} s"
        return ""

    def _unreadable(self, kind: Kind[Any]) -> str:
        """Return text that names the objects of the kind that cannot be read; empty if all can be read."""
        keys = self.cluster.unreadable.of(kind)
        named = ", ".join(printable("/".join(filter(None, key))) for key in islice(keys, _MOST_NAMED))
        if len(keys) > _MOST_NAMED:
            named += f" and {len(keys) - _MOST_NAMED} more"
        return f"{guessed_plural(kind)}: {named} cannot be read" if keys else ""

    def problem(self) -> str:
        """Return why the snapshot cannot be used at all; empty if it can."""
        if not self.is_own:
            return self._feed.problem()
        states = self._feed.states()
        for kind in (PODS, NODES):
            state = states[repr(kind)]
            if not state.synced:
                cause = f" ({state.cause})" if state.cause else ""
                return f"the snapshot of explain is not complete: {guessed_plural(kind)} are not listed yet{cause}"
            if state.age > self._max_age:
                return f"the snapshot of explain is too old: {guessed_plural(kind)}: no contact for {state.age:.0f} s"
        return ""

    def is_listed(self) -> bool:
        """Return True if all pods and nodes were listed, even if long ago."""
        states = self._feed.states()
        return all(states[repr(kind)].synced for kind in (PODS, NODES))

    def age(self) -> float:
        """Return the larger ``FeedState.age`` of pods and nodes: seconds since contact; 0 for a saved cluster."""
        states = self._feed.states()
        return max(states[repr(kind)].age for kind in (PODS, NODES))

    def require_namespace(self, name: str) -> None:
        """Raise ``VerbFailure`` if a namespace does not exist. The message offers similar names.

        A snapshot has Namespace objects only if a plugin reads them. Without them, nothing is raised, because a missing
        namespace cannot be told from one without pods.
        """
        listed = self._namespaces_of(self.cluster) or self._namespaces_of(self._deciding)
        every = {*listed, *self.cluster.namespaces(), *self._deciding.namespaces()}
        if listed and name not in every:
            shown = printable(name)
            raise VerbFailure("nothing_to_do", f'namespaces "{shown}" not found{similar(shown, sorted(every))}')

    def _namespaces_of(self, cluster: Cluster) -> set[str]:
        """Return the names of all namespaces; empty if ``cluster`` lacks them.

        Also empty if a separate snapshot has not listed them yet, or if its list is too old.
        """
        if cluster is not self._deciding:
            state = self._feed.states().get(repr(NAMESPACES))
            if state is None or not state.synced or state.age > self._max_age:
                return set()
        return {name for _, name in (*cluster.others.keys(NAMESPACES), *cluster.unreadable.of(NAMESPACES))}

    def taken_at(self) -> datetime:
        """Return the time of the snapshot: of the last contact (see ``age``), or of the saved file."""
        return datetime.fromtimestamp(time() - self.age() if self._saved_at is None else self._saved_at, UTC)

    @property
    def saved_at(self) -> str | None:
        """Time at which the saved cluster was written, in RFC 3339; ``None`` without a file."""
        return None if self._saved_at is None else whole_seconds(self.taken_at())

    def in_flight(self) -> list[Pod]:
        """Return the assumed pods that have no node in the separate snapshot, each on its intended node.

        They wait at Permit, or their bind is in flight or not visible yet to the watch. To judge like the verbs, add
        these pods with ``cluster.overlay(with_=…)``. Empty without a separate snapshot.
        """
        if not self.is_own:
            return []
        pods = ((self.cluster.pod(*it.key), it.node_name) for it in self._deciding.assumed.pods())
        return [replace(pod, node_name=node) for pod, node in pods if pod is not None and not pod.node_name]


def _reads(plugin: str, kind: Kind[Any], pod: Pod) -> bool:
    """Return False if the pod has no volumes or devices for which the filter reads objects of the kind.

    Return True if it is unknown whether the pod has them.
    """
    spec = pod.spec
    if spec.oversized:
        return True
    try:
        if plugin in _OF_VOLUMES:
            return bool(spec.volumes)
        if plugin in _OF_DEVICES:
            return spec.claims.wants_devices or any("/" in it for it in spec.resources.requests)
        return plugin != _HOME or kind != PERSISTENT_VOLUMES or bool(spec.pending_volumes)
    except NotDecoded:
        return True
