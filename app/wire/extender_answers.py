"""Encodes extender/v1 answers. Keys are in PascalCase, and the lists that kube-scheduler reads are always present."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field


class VictimUid(Struct, forbid_unknown_fields=True):
    """Victim, given by its UID (a MetaPod of extender/v1)."""

    uid: str = field(name="UID", default="")


class NodeVictims(Struct):
    """Victims on one node, most important first (a MetaVictims of extender/v1). In an answer, ``pods`` is not empty."""

    pods: list[VictimUid] = field(name="Pods", default_factory=list)
    num_pdb_violations: int = field(name="NumPDBViolations", default=0)


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
    node_name_to_meta_victims: Mapping[str, NodeVictims]


class _BindingResult(Struct, rename="pascal"):
    error: str


ENCODER: Final = msgspec.json.Encoder()
_NO_NODES: Final = b'{"Nodes":null'
_LONG: Final = 1 << 20
"""Maximum bytes of an answer with whole nodes that is sent at once.

In a longer one, all chunks but the last have at least as many bytes.
"""

_NEXT_HOST: Final = ',{"Host":"'


class LongBody(Struct, frozen=True):
    """Answer that is sent in chunks, because joining 60 MB of nodes would block the event loop for 50 ms.

    ``length``: number of bytes of all ``pieces``.
    """

    pieces: Sequence[bytes | Raw]
    length: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the body in chunks of at least 1 MiB, except for the last one, which can be empty."""
        part: list[bytes | Raw] = []
        size = 0
        for piece in self.pieces:
            part.append(piece)
            size += memoryview(piece).nbytes
            if size >= _LONG:
                yield b"".join(part)
                part, size = [], 0
        yield b"".join(part)


_NOTHING: Final[Mapping[str, str]] = {}


def encode_filter(failed: Mapping[str, str], names: Sequence[str], resolvable: Mapping[str, str] = _NOTHING) -> bytes:
    """Encode a filter answer with node names. ``names``: passing nodes.

    ``failed``: reasons by rejected node on which preemption cannot help (``FailedAndUnresolvableNodes``).
    ``resolvable``: reasons by rejected node on which preemption can help (``FailedNodes``).
    """
    return ENCODER.encode(_FilterResult(None, names, resolvable, failed, ""))


def encode_passing(names: bytes) -> bytes:
    """Encode a filter answer in which no node is rejected. ``names``: passing nodes, joined as in ``SplitArgs``."""
    return _PASSING_START + names + _PASSING_END


def encode_refusal(name: bytes, message: str) -> bytes:
    """Encode one entry for ``encode_refusals``. ``name``: name as in the request's bytes (``SplitArgs.each``)."""
    return b'"' + name + b'":' + ENCODER.encode(message)


def encode_refusals(entries: Iterable[bytes]) -> bytes:
    """Encode a filter answer: no node passes, even after preemption. ``entries``: results of ``encode_refusal``."""
    return _REFUSED_START + b",".join(entries) + _REFUSED_END


def encode_filter_nodes(
    failed: Mapping[str, str], nodes: Sequence[Raw], resolvable: Mapping[str, str] = _NOTHING
) -> bytes | LongBody:
    """Like ``encode_filter``, with whole nodes. ``nodes``: passing nodes, which are copied byte for byte.

    An answer of more than ``_LONG`` bytes is returned as a ``LongBody``.
    """
    end = ENCODER.encode(_FilterResult(None, None, resolvable, failed, ""))[len(_NO_NODES) :]
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
    """Encode a filter answer that lets the scheduling cycle fail. kube-scheduler writes ``message`` to the pod."""
    return ENCODER.encode(_FilterResult(None, None, {}, {}, message))


def encode_priorities(scores: Mapping[str, int]) -> bytes:
    """Encode a prioritize answer. ``scores``: score of each host."""
    return ENCODER.encode([_HostPriority(host, score) for host, score in scores.items()])


def encode_classed(hosts: Sequence[str], classes: Sequence[Any], scores: Mapping[Any, int]) -> bytes:
    """Like ``encode_priorities``, but hosts are grouped into classes. Usually, the score of a class is formatted once.

    ``classes``: class of each host, in the order of ``hosts``. ``scores``: score of each class.
    """
    named = "".join(hosts)
    if not hosts or not named.isprintable() or '"' in named or "\\" in named:
        return encode_priorities(dict(zip(hosts, map(scores.__getitem__, classes), strict=True)))
    between = {key: f'","Score":{score}}}{_NEXT_HOST}' for key, score in scores.items()}
    parts = [""] * (2 * len(hosts))
    parts[::2] = hosts
    parts[1::2] = map(between.__getitem__, classes)
    return f'[{{"Host":"{"".join(parts)[: -len(_NEXT_HOST)]}]'.encode()


def encode_victims(victims: Mapping[str, NodeVictims]) -> bytes:
    """Encode a preempt answer with victims by UID. ``victims`` must not contain a node without victims."""
    return ENCODER.encode(_PreemptionResult(victims))


def encode_binding(error: str = "") -> bytes:
    """Encode a bind answer; an empty ``error`` reports success."""
    return ENCODER.encode(_BindingResult(error))
