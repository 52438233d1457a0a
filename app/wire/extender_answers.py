"""Answers of extender/v1: PascalCase, and never without the list that was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field


class VictimUid(Struct, forbid_unknown_fields=True):
    """A victim by its UID."""

    uid: str = field(name="UID", default="")


class NodeVictims(Struct):
    """The victims on one node, most important first. Never ``null``, never empty in an answer."""

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
_NEXT_HOST: Final = ',{"Host":"'


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
    return ENCODER.encode(_FilterResult(None, names, {}, failed, ""))


def encode_passing(names: bytes) -> bytes:
    """What ``encode_filter`` says where nothing is said of the others; ``names`` as ``SplitArgs`` has them."""
    return _PASSING_START + names + _PASSING_END


def encode_refusal(name: bytes, message: str) -> bytes:
    """One entry of ``encode_refusals``; ``name`` as ``SplitArgs.each`` gives it."""
    return b'"' + name + b'":' + ENCODER.encode(message)


def encode_refusals(entries: Iterable[bytes]) -> bytes:
    """What ``encode_filter`` says where no node passes, from prepared entries."""
    return _REFUSED_START + b",".join(entries) + _REFUSED_END


def encode_filter_nodes(failed: Mapping[str, str], nodes: Sequence[Raw]) -> bytes | LongBody:
    """A filter answer to a request with whole nodes. They go back as the bytes they came as."""
    end = ENCODER.encode(_FilterResult(None, None, {}, failed, ""))[len(_NO_NODES) :]
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
    return ENCODER.encode(_FilterResult(None, None, {}, {}, message))


def encode_priorities(scores: Mapping[str, int]) -> bytes:
    """A prioritize answer: an integer for every host."""
    return ENCODER.encode([_HostPriority(host, score) for host, score in scores.items()])


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


def encode_victims(victims: Mapping[str, NodeVictims]) -> bytes:
    """A preempt answer, always in meta form. A node without victims must not be in it."""
    return ENCODER.encode(_PreemptionResult(victims))


def encode_binding(error: str = "") -> bytes:
    """A bind answer; an empty ``error`` says that the pod was seen bound."""
    return ENCODER.encode(_BindingResult(error))
