"""Decodes the extender/v1 requests of kube-scheduler.

Go accepts keys in any mix of upper and lower case, and ``null`` for any list. So does this decoder, for the keys and
request sizes that ``app.wire.folding`` supports. Keys in the usual case are decoded directly. If a key of the outer
object, or the key of the pod's spec or name, has another case, all known keys are normalized first, which is slower.

Source: ``staging/src/k8s.io/kube-scheduler/extender/v1`` of Kubernetes 1.36.
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
from app.wire.extender_answers import NodeVictims, VictimUid
from app.wire.folding import Int64, NodeVictimsObject, field_names, folded

T = TypeVar("T")
P = TypeVar("P", bound=PodObject)


class MalformedRequest(ValueError):
    """The body is not a valid request of this verb. The message says why, usually with the path of the field."""


class TooDeepRequest(MalformedRequest):
    """The body is nested too deeply. ``without_deep_parts_in_steps`` removes the deep parts."""


class NodeListObject(Struct):
    """NodeList. Its items stay raw, so that they can be returned unchanged."""

    items: list[Raw] | None = None


class _NodesRequestObject(Struct, Generic[P], rename="pascal", forbid_unknown_fields=True):
    pod: P
    nodes: NodeListObject | None = None
    node_names: list[str] | None = None


class NodesRequest(Struct, frozen=True):
    """Filter or prioritize request. Exactly one of ``names`` and ``nodes`` is not ``None``."""

    pod: Pod
    names: Sequence[str] | None
    nodes: Sequence[Raw] | None


class _VictimMeta(Struct):
    uid: str = ""


class _Victim(Struct):
    metadata: _VictimMeta = field(default_factory=_VictimMeta)


class _VictimsObject(Struct, forbid_unknown_fields=True):
    """Victims on one node as whole pods (a Victims of extender/v1), of which only the UID is decoded."""

    pods: list[_Victim] | None = field(name="Pods", default=None)
    num_pdb_violations: Int64 | None = field(name="NumPDBViolations", default=None)

    def slim(self) -> NodeVictims:
        return NodeVictims([VictimUid(pod.metadata.uid) for pod in self.pods or ()], self.num_pdb_violations or 0)


class _PreemptionArgs(Struct, Generic[P], rename="pascal", forbid_unknown_fields=True):
    pod: P
    node_name_to_victims: dict[str, _VictimsObject | None] | None = None
    node_name_to_meta_victims: dict[str, NodeVictimsObject | None] | None = None


class PreemptionArgs(Struct, frozen=True):
    """Preempt request with the victims by node. Victims are given by UID, even if the request has whole pods.

    Nodes without victims are omitted.
    """

    pod: Pod
    victims: Mapping[str, NodeVictims]


class _BindingArgs(Struct, rename="pascal", forbid_unknown_fields=True):
    pod_name: str | None = None
    pod_namespace: str | None = None
    node: str | None = None
    pod_uid: str | None = field(name="PodUID", default=None)


class BindingArgs(Struct, frozen=True):
    """Bind request: namespace, name and UID of the pod, and name of the node."""

    namespace: str
    name: str
    uid: str
    node: str


_ARGS: Final[Mapping[type[PodObject], Decoder[_NodesRequestObject[Any]]]] = {
    it: Decoder(_NodesRequestObject[it])  # type: ignore[valid-type]  # known at run time
    for it in POD_OBJECTS
}
_PREEMPTION: Final[Mapping[type[PodObject], Decoder[_PreemptionArgs[Any]]]] = {
    it: Decoder(_PreemptionArgs[it])  # type: ignore[valid-type]  # known at run time
    for it in POD_OBJECTS
}
_BINDING: Final = Decoder[_BindingArgs](_BindingArgs)

_NAMES: Final = b',"Nodes":null,"NodeNames":["'
"""Bytes before the first node name in a request of kube-scheduler."""

_BETWEEN: Final = b'","'
_END_OF_NAMES: Final = b'"]}'
"""Bytes after the last node name, at the end of a request of kube-scheduler."""


def decode_args(body: bytes | memoryview, core: CoreV1 = PLAIN) -> NodesRequest:
    """Decode a filter or prioritize request. ``core`` selects the parts of the pod that are decoded.

    Raises ``MalformedRequest``, or its subclass ``TooDeepRequest``.
    """
    request = _decode(body, _ARGS[core.pod_object], _has_usual_spelling)
    names, nodes = request.node_names, request.nodes
    if names is not None:
        return NodesRequest(_slim(request.pod, core), names, None)
    if nodes is None:
        raise MalformedRequest("neither NodeNames nor Nodes is given")
    return NodesRequest(_slim(request.pod, core), None, nodes.items or [])


def decode_preemption(body: bytes | memoryview, core: CoreV1 = PLAIN) -> PreemptionArgs:
    """Decode a preempt request. ``core`` selects the parts of the pod that are decoded.

    Raises ``MalformedRequest``, or its subclass ``TooDeepRequest``.
    """
    request = _decode(body, _PREEMPTION[core.pod_object], _has_usual_spelling)
    victims_by_node: Mapping[str, Any] = request.node_name_to_meta_victims or request.node_name_to_victims or {}
    victims = {name: it.slim() for name, it in victims_by_node.items() if it is not None}
    return PreemptionArgs(_slim(request.pod, core), {name: it for name, it in victims.items() if it.pods})


def decode_binding(body: bytes | memoryview) -> BindingArgs:
    """Decode a bind request. Raises ``MalformedRequest``, also for names that are invalid in Kubernetes."""
    try:
        request = _decode(body, _BINDING, _has_pod_name)
    except TooDeepRequest:
        request = _decode(decoding.without_deep_parts(bytes(body)), _BINDING, _has_pod_name)
    return BindingArgs(
        namespace=_required_name("PodNamespace", request.pod_namespace, is_label),
        name=_required_name("PodName", request.pod_name, is_subdomain),
        uid=_required("PodUID", request.pod_uid),
        node=_required_name("Node", request.node, is_subdomain),
    )


def _has_pod_name(request: _BindingArgs) -> bool:
    return request.pod_name is not None


def _required_name(field_name: str, value: str | None, is_name: Callable[[str], bool]) -> str:
    name = _required(field_name, value)
    if not is_name(name):
        raise _invalid_name(field_name, name)
    return name


def _invalid_name(field_name: str, name: str) -> MalformedRequest:
    return MalformedRequest(f"{field_name} is {shown(name)}, which cannot be a name")


def _required(field_name: str, value: str | None) -> str:
    if not value:
        raise MalformedRequest(f"{field_name} is empty")
    return value


class SplitArgs(Struct, frozen=True):
    """Filter or prioritize request that is not decoded, but split before its node names.

    The request must have exactly the form that kube-scheduler sends. ``before``: all bytes before ``_NAMES``.
    ``names``: JSON of the names without the first and the last quote; it contains no escapes. Two requests with equal
    ``before`` differ only in their node names.
    """

    before: bytes
    names: bytes

    @property
    def size(self) -> int:
        """Number of node names. It is at least one, because a request with an empty list is not split."""
        return self.names.count(_BETWEEN) + 1

    @property
    def only(self) -> str:
        """Name of the node, if there is only one; else empty."""
        return "" if _BETWEEN in self.names else self.names.decode()

    def each(self) -> list[bytes]:
        """Return the bytes of each node name."""
        return self.names.split(_BETWEEN)

    def are(self, names: Sequence[str]) -> bool:
        """Return true if ``names`` are the node names that were split off, in order.

        ``names``: node names of the decoded request. If the result is true, the split is correct: the node names are
        the last field of the request.
        """
        return '","'.join(names).encode() == self.names


def split_args(body: bytes | memoryview) -> SplitArgs | None:
    """Split a request before its node names. ``None`` if the form is not kube-scheduler's, or if names have escapes.

    A ``memoryview`` is never split.
    """
    if not isinstance(body, bytes) or not body.endswith(_END_OF_NAMES):
        return None
    cut = body.rfind(_NAMES)
    start = cut + len(_NAMES)
    if cut < 0 or body.find(b"\\", start) >= 0:
        return None
    return SplitArgs(body[:cut], body[start : -len(_END_OF_NAMES)])


def _slim(pod_object: PodObject, core: CoreV1) -> Pod:
    """Return the decoded pod. Raises ``MalformedRequest``, also for names that are invalid in Kubernetes."""
    try:
        pod = core.slim_pod(pod_object)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"Pod: {error}") from None
    if not is_subdomain(pod.name):
        raise _invalid_name("Pod.metadata.name", pod.name)
    if not is_label(pod.namespace):
        raise _invalid_name("Pod.metadata.namespace", pod.namespace)
    return pod


def _decode(body: bytes | memoryview, decoder: Decoder[T], is_usual: Callable[[T], bool]) -> T:
    """Decode a request. If it cannot be decoded directly, or ``is_usual`` returns false, normalize its keys first.

    Raises ``MalformedRequest``, or its subclass ``TooDeepRequest``.
    """
    try:
        request = decoder.at_once(body)
        if is_usual(request):
            return request
    except decoding.TooDeep as error:
        raise TooDeepRequest(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # the keys might have unusual case: they are normalized below, where other errors are raised again
    try:
        return decoder.at_once(folded(body, _FIELD_NAMES[decoder]))
    except (decoding.TooDeep, RecursionError):
        raise TooDeepRequest("nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(str(error)) from None


def _has_usual_spelling(request: Any) -> bool:
    """Return true if the pod's spec and name were decoded.

    kube-scheduler always sends both fields. If one is missing, its key might have unusual case.
    """
    return request.pod.spec is not None and request.pod.metadata.name is not None


_FIELD_NAMES: Final[Mapping[object, Mapping[str, str]]] = {
    **dict.fromkeys(_ARGS.values(), field_names(_NodesRequestObject)),
    **dict.fromkeys(_PREEMPTION.values(), field_names(_PreemptionArgs)),
    _BINDING: field_names(_BindingArgs),
}
"""For each decoder, the keys of the outer object in their usual case, by the key in lower case (``field_names``)."""
