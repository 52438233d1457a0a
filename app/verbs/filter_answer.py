"""Forms of a filter answer: full or lean, and of a lean one all nodes, a sample, or the best (``docs/wire.md``)."""

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
from app.wire.extender_v1 import ExtenderArgs

T = TypeVar("T")

_PREFERS: Final = b"preferredDuringSchedulingIgnoredDuringExecution"
"""In a request: the pod has preferred terms, or an annotation that speaks of them."""


class Judged(Struct, frozen=True):
    """Verdicts on the nodes ``asked``. ``raw``: these nodes as they came, if the request has whole nodes.

    ``rejected`` may be empty where the caller does not read it. ``lasts``: see ``SearchResult``.
    """

    asked: Sequence[str]
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
        return by_lot(items) if self.lean else items

    def chosen(self, passed: Sequence[str], pod: Pod, request: bytes) -> Sequence[str]:
        """Return the nodes that a lean answer names, with the pod's nominated node; all for a pod that prefers some."""
        if self.most and len(passed) > self.most and _PREFERS not in request:
            return some_by_lot(passed, self.most, pod.nominated_node_name)
        return by_lot(passed)

    def passes_all(self, args: ExtenderArgs) -> Answer:
        """Return the answer for a pod of no profile here: all nodes pass."""
        body: bytes | LongBody
        if args.names is not None:
            body = encode_filter({}, self.order(args.names))
        else:
            body = encode_filter_nodes({}, self.order(args.nodes or ()))
        return Answer(body, "nothing_to_do")

    def answer(self, found: Judged) -> Answer:
        """Return the answer with all nodes that pass and, where the caller reads them, the refusals."""
        passed, rejected = found.passed, found.rejected
        outcome: Outcome = "feasible" if passed else ("no_fit" if found.asked else "nothing_to_do")
        if self.lean and passed:  # kube-scheduler reads refusals only if no node is left
            passed, rejected = by_lot(passed), {}
        messages = {key: status.message for key, status in distinct(rejected.values()).items()}
        failed = dict(zip(rejected, map(messages.__getitem__, map(id, rejected.values())), strict=True))
        if found.raw is None:
            return Answer(encode_filter(failed, passed), outcome)
        return Answer(encode_filter_nodes(failed, [found.raw[name] for name in passed]), outcome)


def by_lot(items: Sequence[T]) -> Sequence[T]:
    """The same items from anywhere on, in either direction: enough for ties, and a hundredth of a shuffle's time."""
    if not items:
        return items
    start = int(random() * len(items))  # noqa: S311  # ties, no secret
    turned = [*items[start:], *items[:start]]
    return turned[::-1] if random() < 0.5 else turned  # noqa: S311  # the same


def some_by_lot(names: Sequence[str], most: int, kept: str = "") -> Sequence[str]:
    """``most`` of the names, of which there are more; each set of so many, in each order, is as likely as any other.

    If ``kept`` is one of them it is among those, in the place of any other.
    """
    pool, size = list(names), len(names)
    for place in range(most):
        other = place + int(random() * (size - place))  # noqa: S311  # ties, no secret
        pool[place], pool[other] = pool[other], pool[place]
    some = pool[:most]
    if kept and kept in names and kept not in some:
        some[int(random() * most)] = kept  # noqa: S311  # the same
    return some
