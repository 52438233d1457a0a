"""What Homeport has to be allowed: told from what it does, for the roles and for the check of them.

Every right is named once, with what it is for. A right that is missing takes just that away.
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
_PICTURE: Final = "the picture of the cluster, without which nothing is decided"
_DISCOVERY_SECONDS: Final = 3.0

_BUILT_IN: Final = frozenset({"", "apps", "batch", "policy"})
"""API groups that every cluster serves."""

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
"""Groups and kinds whose plural is known to be the one that ``guessed_plural`` says."""


class Permission(Struct, frozen=True):
    """One thing to be allowed: everywhere or in one namespace, for all objects or the one of a name.

    ``resource`` is a plural, with its subresource where there is one: ``pods/status``.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Need(Struct, frozen=True):
    """A permission and what it is for: that does not work without it."""

    permission: Permission
    reason: str


class Rule(Struct, frozen=True):
    """Permissions that are needed for the same reasons, as a role grants them."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    reasons: tuple[str, ...]
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """``list, watch replicasets.apps, statefulsets.apps``."""
        group = f".{self.group}" if self.group else ""
        named = f" {self.name}" if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        resources = ", ".join(f"{resource}{group}" for resource in self.resources)
        return f"{', '.join(self.verbs)} {resources}{named}{where}"

    @property
    def purpose(self) -> str:
        """What does not work without it."""
        return "; ".join(self.reasons)


class Lease(Struct, frozen=True):
    """Where replicas elect the one that decides."""

    namespace: str
    name: str


class Kept(Struct, frozen=True):
    """A Secret that Homeport fills, and what with."""

    namespace: str
    name: str
    what: str


class Work(Struct, frozen=True):
    """What a configuration has Homeport do. ``lease``: ``None`` for one process. ``events``: are they written?"""

    uses: tuple[Use, ...]
    sampling_guard: bool
    lease: Lease | None = None
    events: bool = False
    secrets: tuple[Kept, ...] = ()

    @property
    def kinds(self) -> tuple[Kind[Any], ...]:
        """The kinds that plugins use, each once."""
        return tuple(dict.fromkeys(use.kind for use in self.uses))

    def needs(self, plurals: Mapping[Kind[Any], str], absent: Iterable[Kind[Any]] = ()) -> list[Need]:
        """All that has to be allowed. ``plurals`` of kinds where they are known; ``absent`` kinds are not served."""
        without = set(absent)
        used = tuple(use for use in self.uses if use.kind not in without)
        return [
            *_core(self.sampling_guard),
            *(_elected(self.lease) if self.lease is not None else ()),
            *_certified(self.secrets),
            *_of_plugins(used, plurals),
            *(_told() if self.events else ()),
        ]


def _core(sampling_guard: bool) -> Iterator[Need]:
    for kind in (NODES, PODS):
        yield from _needs(("list", "watch"), "", guessed_plural(kind), _PICTURE)
    unclear = "reading back a Binding whose outcome is unclear, and a pod that the watch has not brought yet"
    yield from _needs(("get",), "", "pods", unclear)
    yield from _needs(("get",), "", "pods", "saying why a node does not take a pod")
    yield from _needs(("create",), "", "pods/binding", "binding pods")
    late = "fencing off a Binding that may still arrive, by the annotation homeport.dev/unclear-bind on its pod"
    yield from _needs(("patch",), "", "pods/status", late)
    woken = "having a waiting pod tried again for a plugin, by the annotation homeport.dev/activated"
    yield from _needs(("patch",), "", "pods/status", woken)
    if sampling_guard:
        nominated = "nominating a pod that was refused on a whole sample of the nodes to another one (samplingGuard)"
        yield from _needs(("patch",), "", "pods/status", nominated)


def _elected(lease: Lease) -> Iterator[Need]:
    group, plural = "coordination.k8s.io", "leases"
    holding = "holding the Lease that says which replica decides (leaderElection)"
    for verb in ("get", "watch", "update"):
        yield Need(Permission(verb, group, plural, lease.namespace, lease.name), holding)
    yield Need(
        Permission("create", group, plural, lease.namespace),
        "making that Lease; no rule can name an object that is yet to be made",
    )


def _told() -> Iterator[Need]:
    reason = "telling people of homes, nominations and leaders by Events (events)"
    return _needs(("create", "patch"), "events.k8s.io", "events", reason)


def _certified(secrets: Iterable[Kept]) -> Iterator[Need]:
    for it in secrets:
        for verb in ("get", "patch"):
            yield Need(Permission(verb, "", "secrets", it.namespace, it.name), f"keeping {it.what} (selfSigned)")


def _of_plugins(uses: Iterable[Use], plurals: Mapping[Kind[Any], str]) -> Iterator[Need]:
    looks_up = [use for use in uses if use.looks_up]
    if looks_up:
        gone = f"reading a node that seems to be gone: asked for by {_plugins(looks_up)}"
        yield from _needs(("get",), "", "nodes", gone)
    by_kind: dict[Kind[Any], list[Use]] = {}
    for use in uses:
        by_kind.setdefault(use.kind, []).append(use)
    for kind, found in by_kind.items():
        group, plural = group_of(kind), plurals.get(kind) or guessed_plural(kind)
        yield from _needs(("list", "watch"), group, plural, f"{_PICTURE}: read by {_plugins(found)}")
        looking = [use for use in found if use.looks_up]
        if looking:
            reason = f"reading an object that the watch has not brought yet: asked for by {_plugins(looking)}"
            yield from _needs(("get",), group, plural, reason)
        for use in found:
            if use.writes:
                reason = f"writing {use.writes} on these: {use.plugin}"
                whole = ("create", "delete") if use.whole else ()
                yield from _needs((*(() if looking else ("get",)), "patch", *whole), group, plural, reason)


def _needs(verbs: Iterable[str], group: str, resource: str, reason: str) -> Iterator[Need]:
    return (Need(Permission(verb, group, resource), reason) for verb in verbs)


def _plugins(uses: Iterable[Use]) -> str:
    return ", ".join(dict.fromkeys(use.plugin for use in uses))


def rules(needs: Iterable[Need]) -> list[Rule]:
    """The fewest rules that grant these and nothing else, each permission in one of them."""
    reasons: dict[Permission, dict[str, None]] = {}
    for need in needs:
        reasons.setdefault(need.permission, {})[need.reason] = None
    verbs: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for it, why in reasons.items():
        verbs.setdefault((it.group, it.resource, it.namespace, it.name, tuple(why)), []).append(it.verb)
    resources: dict[tuple[str, tuple[str, ...], str, str, tuple[str, ...]], list[str]] = {}
    for (group, resource, namespace, name, for_), them in verbs.items():
        in_order = tuple(sorted(them, key=_VERBS.index))
        resources.setdefault((group, in_order, namespace, name, for_), []).append(resource)
    return [
        Rule(group, tuple(them), in_order, for_, namespace, name)
        for (group, in_order, namespace, name, for_), them in resources.items()
    ]


def group_of(kind: Kind[Any]) -> str:
    """Empty for core/v1."""
    return kind.api_version.rpartition("/")[0]


def guessed_plural(kind: Kind[Any]) -> str:
    """By ``UnsafeGuessKindToResource`` of k8s.io/apimachinery: right for most kinds, and a guess for all."""
    name = kind.kind.lower()
    if name.endswith("s"):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def is_known(kind: Kind[Any]) -> bool:
    """Whether the plural is, without asking a cluster."""
    return (group_of(kind), kind.kind) in _BY_THE_RULE


def may_be_absent(kind: Kind[Any]) -> bool:
    """Whether a cluster may not serve it."""
    return group_of(kind) not in _BUILT_IN


class Discovered(Struct, frozen=True):
    """What a cluster says of kinds: the plurals of those it serves."""

    plurals: Mapping[Kind[Any], str]
    absent: tuple[Kind[Any], ...]


async def discovered(client: KubeClient, kinds: Iterable[Kind[Any]]) -> Discovered:
    """Ask a cluster for kinds. Raises ``KubeError``."""
    found = {
        kind: await client.resolve(kind.api_version, kind.kind, timeout=_DISCOVERY_SECONDS)
        for kind in dict.fromkeys(kinds)
    }
    return Discovered(
        {kind: resource.plural for kind, resource in found.items() if resource is not None},
        tuple(kind for kind, resource in found.items() if resource is None),
    )


async def discovered_at(kubeconfig: str | None, kinds: Iterable[Kind[Any]]) -> Discovered | str:
    """The same for the cluster of a kubeconfig, if there is one that can be reached; else why it could not be asked."""
    try:
        async with KubeClient(load(kubeconfig)) as client:
            return await discovered(client, kinds)
    except (KubeError, CredentialsError) as error:
        return str(error)
