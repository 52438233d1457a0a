"""The extender/v1 JSON of kube-scheduler: what a request says, and answers that it can read.

Answers use PascalCase and are never without the list that was asked for. Requests are read as Go reads them: any case
of a key, ``null`` for any list. The usual spelling is decoded directly; anything else takes a slower way that folds
keys first. Source: ``staging/src/k8s.io/kube-scheduler/extender/v1`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from app.kube import decoding
from app.kube.core_decoding import PLAIN, POD_OBJECTS, CoreV1
from app.kube.core_v1 import Pod
from app.kube.decoding import Decoder
from app.kube.names import is_label, is_subdomain, shown
from app.kube.pod_decoding import PodObject
from app.wire.extender_answers import MetaPod, MetaVictims
from app.wire.folding import Int64, MetaVictimsObject, field_names, folded

T = TypeVar("T")
P = TypeVar("P", bound=PodObject)


class MalformedRequest(ValueError):
    """The body is no request of this verb; says where and why."""


class TooDeep(MalformedRequest):
    """It can be read once ``without_deep_parts_in_steps`` has cut out what lies too deep."""


class NodeListObject(Struct):
    """A NodeList whose items stay as they came, to be sent back without loss."""

    items: list[Raw] | None = None


class _ExtenderArgs(Struct, Generic[P], rename="pascal", forbid_unknown_fields=True):
    pod: P
    nodes: NodeListObject | None = None
    node_names: list[str] | None = None


class ExtenderArgs(Struct, frozen=True):
    """A filter or prioritize request. Exactly one of ``names`` and ``nodes`` is given."""

    pod: Pod
    names: Sequence[str] | None
    nodes: Sequence[Raw] | None


class _VictimMeta(Struct):
    uid: str = ""


class _Victim(Struct):
    metadata: _VictimMeta = field(default_factory=_VictimMeta)


class _VictimsObject(Struct, forbid_unknown_fields=True):
    pods: list[_Victim] | None = field(name="Pods", default=None)
    num_pdb_violations: Int64 | None = field(name="NumPDBViolations", default=None)

    def slim(self) -> MetaVictims:
        return MetaVictims([MetaPod(pod.metadata.uid) for pod in self.pods or ()], self.num_pdb_violations or 0)


class _PreemptionArgs(Struct, Generic[P], rename="pascal", forbid_unknown_fields=True):
    pod: P
    node_name_to_victims: dict[str, _VictimsObject | None] | None = None
    node_name_to_meta_victims: dict[str, MetaVictimsObject | None] | None = None


class PreemptionArgs(Struct, frozen=True):
    """A preempt request; both forms of victims read as the meta form. Nodes without victims are left out."""

    pod: Pod
    victims: Mapping[str, MetaVictims]


class _BindingArgs(Struct, rename="pascal", forbid_unknown_fields=True):
    pod_name: str | None = None
    pod_namespace: str | None = None
    node: str | None = None
    pod_uid: str | None = field(name="PodUID", default=None)


class BindingArgs(Struct, frozen=True):
    """A bind request: of the one pod with that UID."""

    namespace: str
    name: str
    uid: str
    node: str


_ARGS: Final[Mapping[type[PodObject], Decoder[_ExtenderArgs[Any]]]] = {
    it: Decoder(_ExtenderArgs[it])  # type: ignore[valid-type]  # a class is known when this runs
    for it in POD_OBJECTS
}
_PREEMPTION: Final[Mapping[type[PodObject], Decoder[_PreemptionArgs[Any]]]] = {
    it: Decoder(_PreemptionArgs[it])  # type: ignore[valid-type]  # the same
    for it in POD_OBJECTS
}
_BINDING: Final = Decoder[_BindingArgs](_BindingArgs)

_NAMES: Final = b',"Nodes":null,"NodeNames":["'
_BETWEEN: Final = b'","'
_END_OF_NAMES: Final = b'"]}'


def decode_args(body: bytes | memoryview, core: CoreV1 = PLAIN) -> ExtenderArgs:
    """Read a filter or prioritize request, and of the pod what ``core`` says.

    Raises ``MalformedRequest``, of which one kind is ``TooDeep``.
    """
    found = _decode(body, _ARGS[core.pod_object], _has_usual_spelling)
    names, nodes = found.node_names, found.nodes
    if names is not None:
        return ExtenderArgs(_slim(found.pod, core), names, None)
    if nodes is None:
        raise MalformedRequest("neither NodeNames nor Nodes is given")
    return ExtenderArgs(_slim(found.pod, core), None, nodes.items or [])


def decode_preemption(body: bytes | memoryview, core: CoreV1 = PLAIN) -> PreemptionArgs:
    """Read a preempt request, and of the pod what ``core`` says.

    Raises ``MalformedRequest``, of which one kind is ``TooDeep``.
    """
    found = _decode(body, _PREEMPTION[core.pod_object], _has_usual_spelling)
    given: Mapping[str, Any] = found.node_name_to_meta_victims or found.node_name_to_victims or {}
    victims = {name: it.slim() for name, it in given.items() if it is not None}
    return PreemptionArgs(_slim(found.pod, core), {name: it for name, it in victims.items() if it.pods})


def decode_binding(body: bytes | memoryview) -> BindingArgs:
    """Read a bind request. Raises ``MalformedRequest``, also for a name that the API server would not have taken."""
    try:
        found = _decode(body, _BINDING, _names_a_pod)
    except TooDeep:
        found = _decode(decoding.without_deep_parts(bytes(body)), _BINDING, _names_a_pod)
    return BindingArgs(
        namespace=_named("PodNamespace", found.pod_namespace, is_label),
        name=_named("PodName", found.pod_name, is_subdomain),
        uid=_given("PodUID", found.pod_uid),
        node=_named("Node", found.node, is_subdomain),
    )


def _names_a_pod(found: _BindingArgs) -> bool:
    return found.pod_name is not None


def _named(field_name: str, value: str | None, is_name: Callable[[str], bool]) -> str:
    name = _given(field_name, value)
    if not is_name(name):
        raise _no_name(field_name, name)
    return name


def _no_name(field_name: str, name: str) -> MalformedRequest:
    return MalformedRequest(f"{field_name} is {shown(name)}, which cannot be a name")


def _given(field_name: str, value: str | None) -> str:
    if not value:
        raise MalformedRequest(f"{field_name} is empty")
    return value


class SplitArgs(Struct, frozen=True):
    """A filter request in kube-scheduler's own spelling, cut in two and not decoded.

    ``before`` is all that precedes the names. ``names`` are as JSON writes them, without escapes, less the first and
    the last quote. A request whose ``before`` is that of one that was decoded differs from it in the names alone.
    """

    before: bytes
    names: bytes

    @property
    def size(self) -> int:
        """How many names there are: at least one."""
        return self.names.count(_BETWEEN) + 1

    @property
    def only(self) -> str:
        """The name, if it is one; else empty."""
        return "" if _BETWEEN in self.names else self.names.decode()

    def each(self) -> list[bytes]:
        return self.names.split(_BETWEEN)

    def are(self, names: Sequence[str]) -> bool:
        """Whether these are the names that were decoded, in that order: then nothing else follows the cut."""
        return '","'.join(names).encode() == self.names


def split_args(body: bytes | memoryview) -> SplitArgs | None:
    """Cut a request in two; ``None`` for one in any other spelling, or with whole nodes."""
    if not isinstance(body, bytes) or not body.endswith(_END_OF_NAMES):
        return None
    cut = body.rfind(_NAMES)
    start = cut + len(_NAMES)
    if cut < 0 or body.find(b"\\", start) >= 0:
        return None
    return SplitArgs(body[:cut], body[start : -len(_END_OF_NAMES)])


def _slim(found: PodObject, core: CoreV1) -> Pod:
    try:
        pod = core.slim_pod(found)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"Pod: {error}") from None
    if not is_subdomain(pod.name):
        raise _no_name("Pod.metadata.name", pod.name)
    if not is_label(pod.namespace):
        raise _no_name("Pod.metadata.namespace", pod.namespace)
    return pod


def _decode(body: bytes | memoryview, decoder: Decoder[T], is_usual: Callable[[T], bool]) -> T:
    try:
        found = decoder.at_once(body)
        if is_usual(found):
            return found
    except decoding.TooDeep as error:
        raise TooDeep(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # perhaps only the spelling of its keys: folded below, where a real error is raised
    try:
        return decoder.at_once(folded(body, _TOP[decoder]))
    except (decoding.TooDeep, RecursionError):
        raise TooDeep("nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(str(error)) from None


def _has_usual_spelling(found: Any) -> bool:
    """kube-scheduler always sends a spec: without one, its key may be spelled otherwise."""
    return found.pod.spec is not None and found.pod.metadata.name is not None


_TOP: Final[Mapping[object, Mapping[str, str]]] = {
    **dict.fromkeys(_ARGS.values(), field_names(_ExtenderArgs)),
    **dict.fromkeys(_PREEMPTION.values(), field_names(_PreemptionArgs)),
    _BINDING: field_names(_BindingArgs),
}
