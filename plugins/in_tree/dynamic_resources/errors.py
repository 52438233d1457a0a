"""Exceptions of an allocation: kube-scheduler's errors, and rejections if Homeport cannot evaluate the allocation."""

from __future__ import annotations

from typing import Final

from app.framework.status import TOO_LONG, unresolvable
from app.kube.claims import CLAIMS

NAME: Final = "DynamicResources"

REASON_LONG_CLAIMS: Final = TOO_LONG.format(CLAIMS) + ", or has more than 32 entries"
REASON_EXPRESSION: Final = "node(s) can't be judged: a selector of devices uses what is not known here"
REASON_LONG_OBJECT: Final = "node(s) can't be judged: a claim, slice or class of devices is longer than what is read"
REASON_STEPS: Final = "node(s) can't be judged: to find devices takes more steps than a search may have"
REASON_MALFORMED: Final = "node(s) can't be judged: devices or claims have a field that the API server does not take"

OVERSIZED_CLAIMS: Final = unresolvable(REASON_LONG_CLAIMS).by(NAME)


class CannotEvaluate(Exception):  # not an error: the pod is rejected
    """Homeport cannot evaluate the allocation. The pod is rejected on the node with ``reason``, a constant text."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AllocationError(Exception):
    """Error with which kube-scheduler ends the scheduling cycle; the text is kube-scheduler's."""
