"""Types with which a plugin explains its verdicts and exposes gauges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from msgspec import Struct


class Table(Struct, frozen=True):
    """Table of facts in an explanation. Each of the ``rows`` has one value per column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | bool, ...], ...]


class DomainLimit(Struct, frozen=True):
    """Topology spread constraint, with its counts by domain. A domain is a value of the node label ``key``.

    ``terms``: the constraint's parameters as text, for example ``maxSkew 1``. ``pods``: number of counted pods by
    domain. ``nodes``: number of counted nodes by domain. ``full``: domains in which the pod would violate a hard
    constraint; empty for a soft one. ``minimum``: smallest number of pods of a domain; 0 if there are fewer domains
    than ``minDomains``, and then ``lacks_domains`` is true. ``is_hard``: false for a constraint that rejects no node:
    ``ScheduleAnyway``, or soft by the option ``fallback``.
    """

    key: str
    terms: tuple[str, ...]
    pods: Mapping[str, int]
    full: frozenset[str]
    nodes: Mapping[str, int] = {}
    max_skew: int = 1
    minimum: int = 0
    is_hard: bool = True
    lacks_domains: bool = False


class HomeKeeper(Struct, frozen=True, rename="camel"):
    """Owner that has a pod's home in an annotation. ``slot``: ordinal of the pod if each pod of the owner has its own
    home; else empty.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    slot: str


class HomeFacts(Struct, frozen=True, rename="camel"):
    """Home of a pod, as the decision about this pod sees it.

    ``annotation``: key of the owner's annotation that records the home. ``node``: empty if there is no home.
    ``cause``: why the home has this ``state``; can be empty. ``policy_source``: origin of the policy. ``effect``: what
    the plugin does, as text. ``waits``: true if the pod waits for its home. ``since`` and ``until``: start and end of
    the grace period, in RFC 3339; empty before it starts, or if there is none. ``recorded``: false for a home that the
    owner does not record yet.
    """

    owner: HomeKeeper
    annotation: str
    node: str
    state: str
    policy: str
    policy_source: str
    effect: str
    cause: str = ""
    waits: bool = False
    since: str = ""
    until: str = ""
    recorded: bool = True


class Explanation(Struct, frozen=True):
    """Facts behind a plugin's verdict, with the names and numbers that a reason must not contain.

    ``unblock``: hints, for example a change that would make the plugin accept a node. ``later``: function for slow
    additions, for example the verdicts of ``handle.profile.why``. It is called with the names of the nodes that pass
    all judged filters. Its additions are left out if it fails or takes longer than 6 seconds, and their ``home``
    always. ``limits``: topology spread constraints, if the plugin is PodTopologySpread. The Event ``SpreadBlocked`` and
    the list of skews show them. ``home``: home of the pod, if the plugin manages homes and the pod has or would get
    one.
    """

    tables: tuple[Table, ...] = ()
    unblock: tuple[str, ...] = ()
    later: Callable[[Collection[str]], Awaitable[Explanation]] | None = None
    limits: tuple[DomainLimit, ...] = ()
    home: HomeFacts | None = None


class Figure(Struct, frozen=True):
    """One sample of a gauge, exposed as ``homeport_<name>`` with ``labels``.

    Homeport adds the label ``profile`` with the profile's schedulerName. ``text`` describes the gauge, and must be the
    same for all samples of a name. Each label must have few possible values. The values must not come from fields that
    any user of the cluster can set, because such a user could create any number of series.
    """

    name: str
    text: str
    value: float
    labels: Mapping[str, str] = {}
