"""Forms of a filter answer: full or lean.

A lean answer lists no rejected nodes if some nodes pass. It contains all passing nodes, a random sample of them, or
only the best node (``docs/wire.md``).
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
"""Substring of each request about a pod with preferred affinity terms. An annotation can contain the text too. Then all
passing nodes are returned, which does no harm.
"""


class FilterVerdict(Struct, frozen=True):
    """Verdict on the nodes ``names``. ``raw``: the received node objects, if the request has whole nodes.

    ``rejected`` is empty if the answer does not list rejected nodes. ``lasts``: see ``SearchResult``; also false
    if a plan to evict pods changed the verdict.
    """

    names: Sequence[str]
    passed: Sequence[str]
    rejected: Mapping[str, Status]
    raw: Mapping[str, Raw] | None = None
    lasts: bool = True


class AnswerForm(Struct, frozen=True):
    """Form of the answers of one endpoint for the pods of one profile.

    ``lean``: rejected nodes are listed only if no node passes, and passing nodes are in random order. ``most``: maximum
    number of nodes in a lean answer, with the exceptions in ``chosen``; 0 for no limit. It does not apply to requests
    with whole nodes. ``picks``: a lean answer has only the best node.
    """

    lean: bool = False
    most: int = 0
    picks: bool = False

    @classmethod
    def of(cls, framework: Framework, *, lean: bool) -> AnswerForm:
        return cls(lean, framework.at_most, framework.picks) if lean else cls()

    def order(self, items: Sequence[T]) -> Sequence[T]:
        """Return nodes in the order of the answer: random for a lean one, else unchanged."""
        return randomly_rotated(items) if self.lean else items

    def chosen(self, passed: Sequence[str], pod: Pod, request: bytes) -> Sequence[str]:
        """Return the nodes of a lean answer, in random order: all passing nodes, or ``most`` of them if there are more.

        Such a sample includes the pod's nominated node if that node passes. A pod with preferred affinity terms always
        gets all passing nodes, because a sample could miss the preferred ones.
        """
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
        """Return the answer. Its passing nodes are all of ``verdict.passed``. If there are any, a lean answer lists no
        rejected nodes.
        """
        passed, rejected = verdict.passed, verdict.rejected
        outcome: Outcome = "feasible" if passed else ("no_fit" if verdict.names else "nothing_to_do")
        if self.lean and passed:  # kube-scheduler reads the reasons only if no node passes
            passed, rejected = randomly_rotated(passed), {}
        messages = {key: status.message for key, status in distinct(rejected.values()).items()}
        failed = dict(zip(rejected, map(messages.__getitem__, map(id, rejected.values())), strict=True))
        if verdict.raw is None:
            return Answer(encode_filter(failed, passed), outcome)
        return Answer(encode_filter_nodes(failed, [verdict.raw[name] for name in passed]), outcome)


def randomly_rotated(items: Sequence[T]) -> Sequence[T]:
    """Return all items in cyclic order, beginning at a random item, forwards or backwards.

    So the first of several equally good nodes is random. A full shuffle would take a hundred times as long.
    """
    if not items:
        return items
    start = int(random() * len(items))  # noqa: S311  # only breaks ties
    turned = [*items[start:], *items[:start]]
    return turned[::-1] if random() < 0.5 else turned  # noqa: S311  # only breaks ties


def random_sample(names: Sequence[str], most: int, included: str = "") -> Sequence[str]:
    """Return ``most`` random names of a longer sequence. All samples and orders are equally likely.

    If ``included`` is one of the names but not in the sample, it replaces a random name of the sample.
    """
    pool, size = list(names), len(names)
    for place in range(most):
        other = place + int(random() * (size - place))  # noqa: S311  # only breaks ties
        pool[place], pool[other] = pool[other], pool[place]
    some = pool[:most]
    if included and included in names and included not in some:
        some[int(random() * most)] = included  # noqa: S311  # only breaks ties
    return some
