"""Permissions that Homeport needs, derived from its configuration. Generated roles grant them, and ``access_review``
checks them.

Each needed permission has one or more reasons. A reason is a function of Homeport that fails without the permission.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from app.framework.uses import Use
from app.kube.api_errors import KubeError
from app.kube.client import KubeClient
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import load
from app.kube.kinds import NODES, PODS, Kind

_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
_SNAPSHOT: Final = "the snapshot of the cluster, which every decision needs"
_DISCOVERY_SECONDS: Final = 3.0

_BUILT_IN: Final = frozenset({"", "apps", "batch", "policy"})
"""API groups of which every cluster serves all kinds that plugins use. Kinds of any other group might be absent."""

_BY_THE_RULE: Final = frozenset(
    {
        *(("", kind) for kind in ("Pod", "Node", "Namespace", "Service", "ReplicationController")),
        *(("", kind) for kind in ("PersistentVolume", "PersistentVolumeClaim")),
        *(("apps", kind) for kind in ("ReplicaSet", "StatefulSet", "Deployment", "DaemonSet")),
        *(("batch", kind) for kind in ("Job", "CronJob")),
        ("policy", "PodDisruptionBudget"),
        *(("kubevirt.io", kind) for kind in ("VirtualMachine", "VirtualMachineInstance")),
        ("homeport.dev", "Home"),
    }
)
"""Groups and kinds for which ``guessed_plural`` is known to be right, so that ``homeport rbac`` does not look them up.
"""


class Permission(Struct, frozen=True):
    """Permission for one verb of the API server on one resource.

    ``resource`` is the plural, with a subresource if any, for example ``pods/status``. An empty ``namespace`` means all
    namespaces, and an empty ``name`` means all objects.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class PermissionNeed(Struct, frozen=True):
    """Permission that is needed. ``reason`` describes the function that fails without it.

    ``only_explains``: true if the permission is needed only for ``explain: complete``, and for no decision.
    """

    permission: Permission
    reason: str
    only_explains: bool = False


class Rule(Struct, frozen=True):
    """Rule of a role. It grants permissions that are all needed for the same ``reasons``.

    ``only_explains``: true if the permissions are needed only for ``explain: complete``, and for no decision.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    reasons: tuple[str, ...]
    namespace: str = ""
    name: str = ""
    only_explains: bool = False

    def __str__(self) -> str:
        """Return the rule as text, for example ``list, watch replicasets.apps, statefulsets.apps``."""
        group = f".{self.group}" if self.group else ""
        named = f" {self.name}" if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        resources = ", ".join(f"{resource}{group}" for resource in self.resources)
        return f"{', '.join(self.verbs)} {resources}{named}{where}"

    @property
    def purpose(self) -> str:
        """All ``reasons`` as one text: the functions that fail without this rule."""
        return "; ".join(self.reasons)


class LeaseName(Struct, frozen=True):
    """Namespace and name of the Lease for leader election."""

    namespace: str
    name: str


class ManagedSecret(Struct, frozen=True):
    """Secret that Homeport reads and writes. ``what`` describes its content."""

    namespace: str
    name: str
    what: str


class EnabledFeatures(Struct, frozen=True):
    """Configured functions that need permissions.

    ``uses`` are the kinds that plugins read or write. ``sampling_guard`` is true if ``samplingGuard`` is enabled.
    ``lease`` is ``None`` without leader election. ``events`` is true if Events are written. ``secrets``: Secrets for
    self-signed certificates. ``explained`` are the kinds that plugins read for explain, with ``explain: complete``.
    ``evicts`` is true if a profile has ``preemption: Own``.
    """

    uses: tuple[Use, ...]
    sampling_guard: bool
    lease: LeaseName | None = None
    events: bool = False
    secrets: tuple[ManagedSecret, ...] = ()
    explained: tuple[Use, ...] = ()
    evicts: bool = False

    @property
    def kinds(self) -> tuple[Kind[Any], ...]:
        """Kinds that plugins use, also for explain alone, without duplicates."""
        return tuple(dict.fromkeys(use.kind for use in (*self.uses, *self.explained)))

    def needs(self, plurals: Mapping[Kind[Any], str], absent: Iterable[Kind[Any]] = ()) -> list[PermissionNeed]:
        """Return all needed permissions with their reasons.

        ``plurals`` maps kinds to their plurals; all other plurals are guessed. ``absent`` are kinds that the cluster
        does not serve, for which no permission is needed.
        """
        without = set(absent)
        used = tuple(use for use in self.uses if use.kind not in without)
        return [
            *_core(self.sampling_guard),
            *(_leader_election(self.lease) if self.lease is not None else ()),
            *_secrets(self.secrets),
            *_of_plugins(used, plurals),
            *(_evictions() if self.evicts else ()),
            *(_events() if self.events else ()),
            *_of_explain((it for it in self.explained if it.kind not in without), used, plurals),
        ]


def _core(sampling_guard: bool) -> Iterator[PermissionNeed]:
    for kind in (NODES, PODS):
        yield from _needs(("list", "watch"), "", guessed_plural(kind), _SNAPSHOT)
    unclear = "reading back a Binding with an unknown outcome, and a pod that the watch has not reported yet"
    yield from _needs(("get",), "", "pods", unclear)
    yield from _needs(("get",), "", "pods", "explaining why a node does not fit a pod")
    yield from _needs(("create",), "", "pods/binding", "binding pods")
    late = "fencing off a Binding that can still arrive, by the annotation homeport.dev/unclear-bind on its pod"
    yield from _needs(("patch",), "", "pods/status", late)
    woken = "making the scheduler retry a waiting pod for a plugin, by the annotation homeport.dev/activated"
    yield from _needs(("patch",), "", "pods/status", woken)
    if sampling_guard:
        nominated = "nominating a pod that was refused on a whole sample of the nodes to another one (samplingGuard)"
        yield from _needs(("patch",), "", "pods/status", nominated)


def _leader_election(lease: LeaseName) -> Iterator[PermissionNeed]:
    group, plural = "coordination.k8s.io", "leases"
    holding = "holding the Lease that says which replica decides (leaderElection)"
    for verb in ("get", "watch", "update"):
        yield PermissionNeed(Permission(verb, group, plural, lease.namespace, lease.name), holding)
    yield PermissionNeed(
        Permission("create", group, plural, lease.namespace),
        "creating that Lease; a rule for create cannot be limited to a name",
    )


def _evictions() -> Iterator[PermissionNeed]:
    evicting = "evicting pods of lower priority for a pod that only topology spread rejects (preemption: Own)"
    yield from _needs(("create",), "", "pods/eviction", evicting)
    nominated = "nominating that pod to the node of the evicted pods (preemption: Own)"
    yield from _needs(("patch",), "", "pods/status", nominated)


def _events() -> Iterator[PermissionNeed]:
    reason = "recording Events about homes, nominations, leaders and waiting pods (events)"
    return _needs(("create", "patch"), "events.k8s.io", "events", reason)


def _secrets(secrets: Iterable[ManagedSecret]) -> Iterator[PermissionNeed]:
    for secret in secrets:
        for verb in ("get", "patch"):
            yield PermissionNeed(
                Permission(verb, "", "secrets", secret.namespace, secret.name), f"keeping {secret.what} (selfSigned)"
            )


def _of_plugins(uses: Iterable[Use], plurals: Mapping[Kind[Any], str]) -> Iterator[PermissionNeed]:
    looks_up = [use for use in uses if use.looks_up]
    if looks_up:
        gone = f"reading a node that seems to be gone: used by {_plugins(looks_up)}"
        yield from _needs(("get",), "", "nodes", gone)
    by_kind: dict[Kind[Any], list[Use]] = {}
    for use in uses:
        by_kind.setdefault(use.kind, []).append(use)
    for kind, kind_uses in by_kind.items():
        group, plural = group_of(kind), plurals.get(kind) or guessed_plural(kind)
        yield from _needs(("list", "watch"), group, plural, f"{_SNAPSHOT}: read by {_plugins(kind_uses)}")
        looking = [use for use in kind_uses if use.looks_up]
        if looking:
            reason = f"reading an object that the watch has not reported yet: used by {_plugins(looking)}"
            yield from _needs(("get",), group, plural, reason)
        for use in kind_uses:
            if use.writes:
                reason = f"writing {use.writes} on these: {use.plugin}"
                whole = ("create", "delete") if use.whole else ()
                yield from _needs((*(() if looking else ("get",)), "patch", *whole), group, plural, reason)


def _of_explain(
    uses: Iterable[Use], deciding: Iterable[Use], plurals: Mapping[Kind[Any], str]
) -> Iterator[PermissionNeed]:
    """Yield the needs of kinds that are read only for explain, and for no decision."""
    known = {use.kind for use in deciding}
    by_kind: dict[Kind[Any], list[Use]] = {}
    for use in uses:
        if use.kind not in known:
            by_kind.setdefault(use.kind, []).append(use)
    for kind, kind_uses in by_kind.items():
        reason = f"explain alone, no decision (explain: complete): read by {_plugins(kind_uses)}"
        for need in _needs(("list", "watch"), group_of(kind), plurals.get(kind) or guessed_plural(kind), reason):
            yield PermissionNeed(need.permission, need.reason, only_explains=True)


def _needs(verbs: Iterable[str], group: str, resource: str, reason: str) -> Iterator[PermissionNeed]:
    return (PermissionNeed(Permission(verb, group, resource), reason) for verb in verbs)


def _plugins(uses: Iterable[Use]) -> str:
    return ", ".join(dict.fromkeys(use.plugin for use in uses))


def rules(needs: Iterable[PermissionNeed]) -> list[Rule]:
    """Return rules that grant exactly the permissions of ``needs``; each permission is in one rule.

    A rule combines resources of one API group, namespace and name that have equal verbs and reasons.
    """
    reasons: dict[Permission, dict[str, None]] = {}
    to_explain: set[str] = set()
    for need in needs:
        if need.only_explains:
            to_explain.add(need.reason)
        reasons.setdefault(need.permission, {})[need.reason] = None
    verbs: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for permission, why in reasons.items():
        verbs.setdefault(
            (permission.group, permission.resource, permission.namespace, permission.name, tuple(why)), []
        ).append(permission.verb)
    resources: dict[tuple[str, tuple[str, ...], str, str, tuple[str, ...]], list[str]] = {}
    for (group, resource, namespace, name, for_), items in verbs.items():
        in_order = tuple(sorted(items, key=_VERBS.index))
        resources.setdefault((group, in_order, namespace, name, for_), []).append(resource)
    return [
        Rule(group, tuple(items), in_order, for_, namespace, name, to_explain.issuperset(for_))
        for (group, in_order, namespace, name, for_), items in resources.items()
    ]


def group_of(kind: Kind[Any]) -> str:
    """Return the API group of a kind; empty for the core group."""
    return kind.api_version.rpartition("/")[0]


def guessed_plural(kind: Kind[Any]) -> str:
    """Guess the plural of a kind, as ``UnsafeGuessKindToResource`` of k8s.io/apimachinery does.

    The guess is right for most kinds.
    """
    name = kind.kind.lower()
    if name.endswith("s"):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def is_known(kind: Kind[Any]) -> bool:
    """Return true if ``guessed_plural`` is known to be right for this kind."""
    return (group_of(kind), kind.kind) in _BY_THE_RULE


def may_be_absent(kind: Kind[Any]) -> bool:
    """Return true if a cluster might not serve the kind, because its API group is not in ``_BUILT_IN``."""
    return group_of(kind) not in _BUILT_IN


class DiscoveredKinds(Struct, frozen=True):
    """Result of API discovery: the plurals of the kinds that are served, and the ``absent`` kinds, which are not."""

    plurals: Mapping[Kind[Any], str]
    absent: tuple[Kind[Any], ...]


async def discovered(client: KubeClient, kinds: Iterable[Kind[Any]]) -> DiscoveredKinds:
    """Look up kinds with API discovery. Raises ``KubeError`` if a request fails."""
    resources = {
        kind: await client.resolve(kind.api_version, kind.kind, timeout=_DISCOVERY_SECONDS)
        for kind in dict.fromkeys(kinds)
    }
    return DiscoveredKinds(
        {kind: resource.plural for kind, resource in resources.items() if resource is not None},
        tuple(kind for kind, resource in resources.items() if resource is None),
    )


async def discovered_at(kubeconfig: str | None, kinds: Iterable[Kind[Any]]) -> DiscoveredKinds | str:
    """Look up kinds in the cluster of a kubeconfig. If that fails, return the reason instead."""
    try:
        async with KubeClient(load(kubeconfig)) as client:
            return await discovered(client, kinds)
    except (KubeError, CredentialsError) as error:
        return str(error)
