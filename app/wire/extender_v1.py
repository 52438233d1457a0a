"""The extender/v1 JSON of kube-scheduler: what a request says, and answers that it can read.

Answers use PascalCase and are never without the list that was asked for. Requests are read as Go reads them: any case
of a key, ``null`` for any list. The usual spelling is decoded directly; anything else takes a slower way that folds
keys first. Source: ``staging/src/k8s.io/kube-scheduler/extender/v1`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from app.kube import decoding
from app.kube.core_v1 import PLAIN, POD_OBJECTS, CoreV1, Pod, PodObject
from app.kube.decoding import Decoder
from app.kube.names import is_label, is_subdomain, shown

T = TypeVar("T")
P = TypeVar("P", bound=PodObject)


class MalformedRequest(ValueError):
    """The body is no request of this verb; says where and why."""


class TooDeep(MalformedRequest):
    """It can be read once ``levelled_in_turns`` has cut out what lies too deep."""


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


Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class MetaPod(Struct, forbid_unknown_fields=True):
    """A victim by its UID."""

    uid: str = field(name="UID", default="")


class MetaVictims(Struct):
    """The victims on one node, most important first. Never ``null``, never empty in an answer."""

    pods: list[MetaPod] = field(name="Pods", default_factory=list)
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


class _MetaVictimsObject(Struct, forbid_unknown_fields=True):
    pods: list[MetaPod] | None = field(name="Pods", default=None)
    num_pdb_violations: Int64 | None = field(name="NumPDBViolations", default=None)

    def slim(self) -> MetaVictims:
        return MetaVictims(self.pods or [], self.num_pdb_violations or 0)


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
    node_name_to_meta_victims: dict[str, _MetaVictimsObject | None] | None = None


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


class _FilterResult(Struct, rename="pascal"):
    nodes: Any
    node_names: Sequence[str] | None
    failed_nodes: Mapping[str, str]
    failed_and_unresolvable_nodes: Mapping[str, str]
    error: str


class _HostPriority(Struct, rename="pascal"):
    host: str
    score: int


class _PreemptionResult(Struct, rename="pascal"):
    node_name_to_meta_victims: Mapping[str, MetaVictims]


class _BindingResult(Struct, rename="pascal"):
    error: str


_ENCODER: Final = msgspec.json.Encoder()
_ARGS: Final[Mapping[type[PodObject], Decoder[_ExtenderArgs[Any]]]] = {
    it: Decoder(_ExtenderArgs[it])  # type: ignore[valid-type]  # a class is known when this runs
    for it in POD_OBJECTS
}
_PREEMPTION: Final[Mapping[type[PodObject], Decoder[_PreemptionArgs[Any]]]] = {
    it: Decoder(_PreemptionArgs[it])  # type: ignore[valid-type]  # the same
    for it in POD_OBJECTS
}
_BINDING: Final = Decoder[_BindingArgs](_BindingArgs)
_OUTER: Final[Decoder[dict[str, Raw]]] = Decoder(dict[str, Raw])
_ANY: Final[Decoder[Any]] = Decoder(Any)


_NO_NODES: Final = b'{"Nodes":null'
_NAMES: Final = b',"Nodes":null,"NodeNames":["'
_BETWEEN: Final = b'","'
_END_OF_NAMES: Final = b'"]}'
_LONG: Final = 1 << 20
_MOST_FOLDED: Final = 4 << 20
"""Bytes that may be read key by key, which takes up to half a second. kube-scheduler's requests never are."""


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
        found = _decode(decoding.levelled(bytes(body)), _BINDING, _names_a_pod)
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


_NEXT_HOST: Final = ',{"Host":"'


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


class LongBody(Struct, frozen=True):
    """A body too long to be put together at once: 60 MB of nodes would hold up everybody for 50 ms."""

    pieces: Sequence[bytes | Raw]
    length: int

    def chunks(self) -> Iterator[bytes]:
        """The body in parts of about a megabyte."""
        part: list[bytes | Raw] = []
        size = 0
        for piece in self.pieces:
            part.append(piece)
            size += memoryview(piece).nbytes
            if size >= _LONG:
                yield b"".join(part)
                part, size = [], 0
        yield b"".join(part)


def encode_filter(failed: Mapping[str, str], names: Sequence[str]) -> bytes:
    """A filter answer to a request that named nodes: those that pass, and why the others do not."""
    return _ENCODER.encode(_FilterResult(None, names, {}, failed, ""))


def encode_passing(names: bytes) -> bytes:
    """What ``encode_filter`` says where nothing is said of the others; ``names`` as ``SplitArgs`` has them."""
    return _PASSING_START + names + _PASSING_END


def encode_refusal(name: bytes, message: str) -> bytes:
    """One entry of ``encode_refusals``; ``name`` as ``SplitArgs.each`` gives it."""
    return b'"' + name + b'":' + _ENCODER.encode(message)


def encode_refusals(entries: Iterable[bytes]) -> bytes:
    """What ``encode_filter`` says where no node passes, from prepared entries."""
    return _REFUSED_START + b",".join(entries) + _REFUSED_END


def encode_filter_nodes(failed: Mapping[str, str], nodes: Sequence[Raw]) -> bytes | LongBody:
    """A filter answer to a request with whole nodes. They go back as the bytes they came as."""
    end = _ENCODER.encode(_FilterResult(None, None, {}, failed, ""))[len(_NO_NODES) :]
    pieces: list[bytes | Raw] = [b'{"Nodes":{"metadata":{},"items":[']
    for index, node in enumerate(nodes):
        if index:
            pieces.append(b",")
        pieces.append(node)
    pieces.append(b"]}" + end)
    length = sum(memoryview(piece).nbytes for piece in pieces)
    return LongBody(pieces, length) if length > _LONG else b"".join(pieces)


_PASSING_START, _PASSING_END = encode_filter({}, ("*",)).split(b"*")
_REFUSED_START, _REFUSED_END = encode_filter({"": ""}, ()).split(b'"":""')


def encode_filter_error(message: str) -> bytes:
    """A filter answer that fails the cycle with ``message`` on the pod."""
    return _ENCODER.encode(_FilterResult(None, None, {}, {}, message))


def encode_priorities(scores: Mapping[str, int]) -> bytes:
    """A prioritize answer: an integer for every host."""
    return _ENCODER.encode([_HostPriority(host, score) for host, score in scores.items()])


def encode_classed(hosts: Sequence[str], classes: Sequence[Any], scores: Mapping[Any, int]) -> bytes:
    """The same for hosts of which many score alike: each score is written once, then put between the names.

    ``classes`` holds the class of each host, ``scores`` the score of each class.
    """
    named = "".join(hosts)
    if not hosts or not named.isprintable() or '"' in named or "\\" in named:
        return encode_priorities(dict(zip(hosts, map(scores.__getitem__, classes), strict=True)))
    between = {key: f'","Score":{score}}}{_NEXT_HOST}' for key, score in scores.items()}
    parts = [""] * (2 * len(hosts))
    parts[::2] = hosts
    parts[1::2] = map(between.__getitem__, classes)
    return f'[{{"Host":"{"".join(parts)[: -len(_NEXT_HOST)]}]'.encode()


def encode_victims(victims: Mapping[str, MetaVictims]) -> bytes:
    """A preempt answer, always in meta form. A node without victims must not be in it."""
    return _ENCODER.encode(_PreemptionResult(victims))


def encode_binding(error: str = "") -> bytes:
    """A bind answer; an empty ``error`` says that the pod was seen bound."""
    return _ENCODER.encode(_BindingResult(error))


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
        return decoder.at_once(_folded(body, _TOP[decoder]))
    except (decoding.TooDeep, RecursionError):
        raise TooDeep("nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(str(error)) from None


def _has_usual_spelling(found: Any) -> bool:
    """kube-scheduler always sends a spec: without one, its key may be spelled otherwise."""
    return found.pod.spec is not None and found.pod.metadata.name is not None


def _field_names(kind: type[Struct]) -> dict[str, str]:
    return {it.encode_name.lower(): it.encode_name for it in msgspec.structs.fields(kind)}


_TOP: Final[Mapping[object, Mapping[str, str]]] = {
    **dict.fromkeys(_ARGS.values(), _field_names(_ExtenderArgs)),
    **dict.fromkeys(_PREEMPTION.values(), _field_names(_PreemptionArgs)),
    _BINDING: _field_names(_BindingArgs),
}
_VICTIMS: Final = _field_names(_MetaVictimsObject)
_NESTED: Final = {
    name.lower(): name
    for names in (
        ("metadata", "name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences"),
        ("creationTimestamp", "deletionTimestamp", "apiVersion", "kind", "controller", "items"),
        ("spec", "nodeName", "schedulerName", "priority", "schedulingGates", "nodeSelector", "tolerations"),
        ("key", "operator", "value", "values", "effect", "taints", "unschedulable"),
        ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
        ("matchExpressions", "matchFields", "matchLabels", "matchLabelKeys", "labelSelector"),
        ("topologySpreadConstraints", "topologyKey", "whenUnsatisfiable", "maxSkew", "minDomains"),
        ("nodeAffinityPolicy", "nodeTaintsPolicy", "status", "phase", "nominatedNodeName"),
        ("containers", "initContainers", "image", "restartPolicy", "ports", "hostPort", "hostIP", "protocol"),
        ("resources", "requests", "overhead", "volumes", "reference", "containerStatuses", "initContainerStatuses"),
        ("allocatedResources", "conditions", "type", "reason", "allocatable", "images", "names", "sizeBytes"),
        ("lastTransitionTime", "nodeInfo", "systemUUID", "persistentVolumeClaim", "claimName", "ephemeral"),
    )
    for name in names
}
_VICTIM_MAPS: Final = frozenset({"NodeNameToVictims", "NodeNameToMetaVictims"})
_OBJECTS: Final = frozenset({"Pod", "Nodes"})
_USER_KEYS: Final = frozenset(
    {
        "labels",
        "annotations",
        "nodeSelector",
        "matchLabels",
        "requests",
        "overhead",
        "allocatedResources",
        "allocatable",
    }
)


def _folded(body: bytes | memoryview, known: Mapping[str, str]) -> bytes:
    """The request with every key that we read in its usual case, unknown ones of the outer objects left out."""
    found = _OUTER.at_once(body)
    outer = {name: value for key, value in found.items() if (name := known.get(key.lower())) is not None}
    if sum(memoryview(value).nbytes for value in outer.values()) > _MOST_FOLDED:
        raise msgspec.ValidationError("neither spelled as usual nor short enough to be read otherwise")
    return _ENCODER.encode({name: _fold_top(name, _ANY.at_once(value)) for name, value in outer.items()})


def _fold_top(name: str, value: Any) -> Any:
    if name in _OBJECTS:
        return _fold(value)
    if name in _VICTIM_MAPS and isinstance(value, dict):
        fold = _fold_meta_victim if name == "NodeNameToMetaVictims" else _fold
        return {node: _fold_victims(victims, fold) for node, victims in value.items()}
    if name == "NodeNames" and isinstance(value, list):
        return ["" if it is None else it for it in value]
    return value


def _fold_victims(found: Any, fold: Callable[[Any], Any]) -> Any:
    if not isinstance(found, dict):
        return found
    folded = {name: value for key, value in found.items() if (name := _VICTIMS.get(key.lower())) is not None}
    pods = folded.get("Pods")
    if isinstance(pods, list):
        folded["Pods"] = [fold(pod) for pod in pods if pod is not None]
    return folded


def _fold_meta_victim(found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    uids = [value or "" for key, value in found.items() if key.lower() == "uid"]
    return {"UID": uids[-1]} if uids else {}


def _fold(value: Any) -> Any:
    if isinstance(value, list):
        return [_fold(it) for it in value]
    if not isinstance(value, dict):
        return value
    folded = {}
    for key, part in value.items():
        name = _NESTED.get(key.lower(), key)
        folded[name] = part if name in _USER_KEYS else _fold(part)
    return folded
