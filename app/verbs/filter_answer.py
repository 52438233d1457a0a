"""Forms of a filter answer: full or lean; a lean one has all passing nodes, a sample, or the best
(``docs/wire.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import random
from typing import Final, TypeVar

from msgspec import Raw, Struct

from app.framework.status import Status, distinct
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.verbs.outcome import Answer, Outcome
from app.wire.extender_answers import LongBody, encode_filter, encode_filter_nodes
from app.wire.extender_v1 import NodesRequest

T = TypeVar("T")

_PREFERS: Final = b"preferredDuringSchedulingIgnoredDuringExecution"
"""Substring of a request whose pod has preferred affinity terms, or an annotation that mentions them."""


class FilterVerdict(Struct, frozen=True):
    """Verdict on the nodes ``names``. ``raw``: the node objects as received, if the request has whole nodes.

    ``rejected`` can be empty if the caller does not read it. ``lasts``: no rejection depends on which other nodes
    passed.
    """

    names: Sequence[str]
    passed: Sequence[str]
    rejected: Mapping[str, Status]
    raw: Mapping[str, Raw] | None = None
    lasts: bool = True


class AnswerForm(Struct, frozen=True):
    """Form of the answers of one endpoint for the pods of one profile.

    ``lean``: refusals only if no node passes, and nodes in random order. Of lean answers, ``most`` is the maximum
    number of nodes, 0 for all, and ``picks`` says that they name the best node alone.
    """

    lean: bool = False
    most: int = 0
    picks: bool = False

    @classmethod
    def of(cls, framework: Framework, *, lean: bool) -> AnswerForm:
        return cls(lean, framework.at_most, framework.picks) if lean else cls()

    def order(self, items: Sequence[T]) -> Sequence[T]:
        """Return nodes in the order of the answer."""
        return randomly_rotated(items) if self.lean else items

    def chosen(self, passed: Sequence[str], pod: Pod, request: bytes) -> Sequence[str]:
        """Return the nodes that a lean answer names, with the pod's nominated node; all for a pod that prefers some."""
        if self.most and len(passed) > self.most and _PREFERS not in request:
            return random_sample(passed, self.most, pod.nominated_node_name)
        return randomly_rotated(passed)

    def pass_all(self, args: NodesRequest) -> Answer:
        """Return the answer for a pod without a profile here: all nodes pass."""
        body: bytes | LongBody
        if args.names is not None:
            body = encode_filter({}, self.order(args.names))
        else:
            body = encode_filter_nodes({}, self.order(args.nodes or ()))
        return Answer(body, "nothing_to_do")

    def answer(self, verdict: FilterVerdict) -> Answer:
        """Return the answer with all nodes that pass and, where the caller reads them, the refusals."""
        passed, rejected = verdict.passed, verdict.rejected
        outcome: Outcome = "feasible" if passed else ("no_fit" if verdict.names else "nothing_to_do")
        if self.lean and passed:  # kube-scheduler reads refusals only if no node is left
            passed, rejected = randomly_rotated(passed), {}
        messages = {key: status.message for key, status in distinct(rejected.values()).items()}
        failed = dict(zip(rejected, map(messages.__getitem__, map(id, rejected.values())), strict=True))
        if verdict.raw is None:
            return Answer(encode_filter(failed, passed), outcome)
        return Answer(encode_filter_nodes(failed, [verdict.raw[name] for name in passed]), outcome)


def randomly_rotated(items: Sequence[T]) -> Sequence[T]:
    """Return the items from a random start, in a random direction.

    That breaks ties at random, in a hundredth of the time of a shuffle.
    """
    if not items:
        return items
    start = int(random() * len(items))  # noqa: S311  # ties, no secret
    turned = [*items[start:], *items[:start]]
    return turned[::-1] if random() < 0.5 else turned  # noqa: S311  # ties, no secret


def random_sample(names: Sequence[str], most: int, included: str = "") -> Sequence[str]:
    """Return ``most`` of the names at random; there must be more. All sets and orders are equally likely.

    If ``included`` is one of the names, it is in the sample, in place of a random other one.
    """
    pool, size = list(names), len(names)
    for place in range(most):
        other = place + int(random() * (size - place))  # noqa: S311  # ties, no secret
        pool[place], pool[other] = pool[other], pool[place]
    some = pool[:most]
    if included and included in names and included not in some:
        some[int(random() * most)] = included  # noqa: S311  # ties, no secret
    return some
