"""Evaluates saved cases, each with a cluster and a pending pod: a profile's plugins give verdicts on every node.

A case is one line of JSON, and so is its verdict; ``docs/evaluate.md`` has the format. Without a ``config``, a case
uses kube-scheduler's default profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace
from pydantic import ValidationError

from app.analysis.verdict import Verdict, evaluate_pod, evaluate_preemption
from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.config.profile import Profile
from app.feeds.saved import in_memory_handle
from app.feeds.stores import store_for
from app.framework.cycle_state import CycleState
from app.framework.handle import DEFAULT_RELEASE
from app.framework.node_info import Candidates
from app.kube.core_decoding import CoreV1
from app.kube.core_v1 import Pod
from app.kube.decoding import Decoder
from app.kube.kinds import NODES, PODS, Kind
from app.runtime.building import build, served_names
from app.runtime.framework import Framework
from app.runtime.guard import Guard, PluginError
from app.runtime.post_filters import NoPreemption
from app.runtime.profiles import ProfileErrors, ResolvedProfile, core_for
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.runtime.waiting import PodsAtPermit


class BadCase(ValueError):
    """Raised for a case that cannot be evaluated. The message gives the reason."""


class _Preempt(Struct):
    """Field of a case that requests preemption. ``nodes``: nodes on which victims are searched."""

    nodes: list[str]


class _Case(Struct):
    """Case, of which the pod, the ``config`` and the objects are not decoded yet."""

    pod: Raw
    name: str = ""
    config: Raw = Raw(b"{}")
    objects: list[Raw] | None = None
    preempt: _Preempt | None = None


class _CaseName(Struct):
    """Name of a case, for the error if the rest of the case is invalid."""

    name: str = ""


class _TypeMeta(Struct, rename="camel"):
    kind: str
    api_version: str


_CASE: Final = Decoder[_Case](_Case)
_CASE_NAME: Final = Decoder[_CaseName](_CaseName)
_TYPE: Final = Decoder[_TypeMeta](_TypeMeta)
_CONFIG: Final[Decoder[Any]] = Decoder(Any)
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
_HOMEPORT_FIELDS: Final = {
    "preset": "preset",
    "bind_recheck": "bindRecheck",
    "at_most": "atMost",
    "pick": "pick",
    "preemption": "preemption",
}
"""Profile fields that a case must not set, because a KubeSchedulerConfiguration does not have them.

Maps the Python name to the name in the configuration file.
"""


class _CaseProfile(Struct, frozen=True):
    """Resolved profile of a case. Computed once per ``config``.

    ``core``: decoder with all fields that the profile's plugins read. ``kinds``: kinds of the objects to load, by API
    version and kind name.
    """

    profile: ResolvedProfile
    core: CoreV1
    kinds: Mapping[tuple[str, str], Kind[Any]]

    @classmethod
    def of(cls, profile: ResolvedProfile) -> Self:
        every: tuple[Kind[Any], ...] = (NODES, PODS, *profile.kinds())
        return cls(profile, core_for((profile,)), {(kind.api_version, kind.kind): kind for kind in every})


class Evaluator:
    """Evaluates cases. The resolved profile of each distinct ``config`` is cached.

    ``registry``: the available plugins. Its default profile must be that of kube-scheduler. ``release``: Kubernetes
    release of profiles that do not specify one.
    """

    def __init__(self, registry: Registry, guard: Guard, release: str = DEFAULT_RELEASE) -> None:
        self._registry = registry
        self._release = release
        self._guard = guard
        self._profiles: dict[bytes, _CaseProfile | str] = {}

    def evaluate(self, line: bytes) -> bytes:
        """Return the verdict on one case as JSON, without a newline.

        If the case is invalid, or a plugin fails after Filter, return the name of the case and an ``error`` instead. An
        error of PreFilter or Filter is part of the verdict.
        """
        try:
            verdict = self._evaluate(_decoded(line))
        except (BadCase, PluginError) as error:
            verdict = {"name": _name_of(line), "error": str(error)}
        return _ENCODER.encode(verdict)

    def _evaluate(self, case: _Case) -> Verdict:
        case_profile = self._profile(bytes(case.config))
        cluster = _snapshot(case, case_profile)
        try:
            framework = framework_in_memory(case_profile.profile, cluster, self._guard)
        except ProfileErrors as error:
            raise BadCase(f"config: {'; '.join(error.messages)}") from None
        pod = _pod("pod", case.pod, cluster.core)
        with cluster.without(pod.uid, pod.key):
            return {
                "name": case.name,
                **run_prepared(lambda: _verdict(framework, pod, Candidates.of(cluster.nodes), case)),
            }

    def _profile(self, config: bytes) -> _CaseProfile:
        resolved = self._profiles.get(config)
        if resolved is None:
            resolved = self._profiles[config] = self._resolved(config)
        if isinstance(resolved, str):
            raise BadCase(resolved)
        return resolved

    def _resolved(self, config: bytes) -> _CaseProfile | str:
        """Return the profile of a config; the error message if it is invalid or names a plugin that is not available.

        The caller caches both.
        """
        try:
            document = _CONFIG.decode(config) or {}
            parsed = Profile.model_validate(document)
            if "release" not in parsed.model_fields_set:
                parsed = parsed.model_copy(update={"release": self._release})
            if unknown := [word for name, word in _HOMEPORT_FIELDS.items() if name in parsed.model_fields_set]:
                return "; ".join(f"config.{word}: is not a field of KubeSchedulerConfiguration" for word in unknown)
            (profile,) = resolve((parsed,), self._registry)
        except _UNREADABLE as error:
            return f"config: {error}"
        except ValidationError as error:
            return "; ".join(f"config.{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in error.errors())
        except ProfileErrors as error:
            return f"config: {'; '.join(error.messages)}"
        if profile.absent:
            return f"plugins not available: [{' '.join(profile.absent)}]"
        return _CaseProfile.of(profile)


def framework_in_memory(profile: ResolvedProfile, cluster: Cluster, guard: Guard) -> Framework:
    """Create the framework of a profile for a cluster in memory, without an API server. Raises ``ProfileErrors``."""
    waiting = PodsAtPermit()
    return build(
        profile,
        in_memory_handle(cluster, waiting),
        served=served_names((profile.scheduler_name,)),
        nominations=cluster,
        snapshot=cluster,
        waiting=waiting,
        guard=guard,
    )


def _verdict(framework: Framework, pod: Pod, nodes: Candidates, case: _Case) -> Verdict:
    """Return the verdict on one case, with victims if the case requests preemption.

    Raises ``BadCase``, ``PluginError`` or ``Unprepared``.
    """
    state = CycleState()
    verdict = evaluate_pod(framework, pod, nodes, state)
    if case.preempt is None:
        return verdict
    unknown = [name for name in case.preempt.nodes if name not in nodes.name_set]
    if unknown:
        raise BadCase(f"preempt.nodes: no such node: {unknown[0]}")
    try:
        return {**verdict, **evaluate_preemption(framework, pod, nodes, case.preempt.nodes, state, verdict)}
    except NoPreemption as error:
        raise BadCase(f"preempt: {error}") from None


def _decoded(line: bytes) -> _Case:
    try:
        return _CASE.decode(line)
    except _UNREADABLE as error:
        raise BadCase(str(error)) from None


def _name_of(line: bytes) -> str:
    """Return the name of a case, even if its other fields are invalid; empty if no name can be read."""
    try:
        return _CASE_NAME.decode(line).name
    except _UNREADABLE:
        return ""


def _snapshot(case: _Case, case_profile: _CaseProfile) -> Cluster:
    """Create a cluster from the objects of a case. Objects of kinds that no plugin reads are ignored.

    Raises ``BadCase``.
    """
    cluster = Cluster(case_profile.core)
    stores = {kind: store_for(cluster, kind) for kind in case_profile.kinds.values()}
    for index, raw in enumerate(case.objects or ()):
        try:
            meta = _TYPE.decode(raw)
            kind = case_profile.kinds.get((meta.api_version, meta.kind))
            if kind is not None:
                stores[kind].upsert(_identified(cluster.decoder(kind)(raw)))
        except _UNREADABLE as error:
            raise BadCase(f"objects[{index}]: {error}") from None
    return cluster


def _identified(obj: Any) -> Any:
    """Return the object; a pod without a UID gets ``namespace/name`` as UID, because the snapshot needs one."""
    return replace(obj, uid=str(obj)) if isinstance(obj, Pod) and not obj.uid else obj


def _pod(field: str, raw: Raw, core: CoreV1) -> Pod:
    try:
        return core.decode_pod(raw)
    except _UNREADABLE as error:
        raise BadCase(f"{field}: {error}") from None
