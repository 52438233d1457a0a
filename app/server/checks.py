"""Checks of ``/readyz?verbose``, one per line: snapshot, feeds, leadership, certificates and permissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from app.feeds.feed import Feed, FeedState
from app.replicas.authority import Authority
from app.replicas.leadership import Leadership
from app.rights.access_review import PermissionCheck

_FAILING: Final = frozenset({"forbidden", "retrying"})
"""States of a feed in which its check fails even if the feed is ``synced``."""


class ReadinessCheck(Struct, frozen=True):
    """Result of one check. ``problem``: why it failed; empty on success. ``detail``: facts printed on success."""

    name: str
    problem: str = ""
    detail: str = ""

    def __str__(self) -> str:
        """Format the result like kube-apiserver."""
        if self.problem:
            return f"[-]{self.name} failed: {self.problem}"
        return f"[+]{self.name} ok: {self.detail}" if self.detail else f"[+]{self.name} ok"


def checks(
    feed: Feed, leadership: Leadership, permissions: PermissionCheck | None, authority: Authority | None = None
) -> Iterator[ReadinessCheck]:
    """Yield the results of all checks.

    ``permissions`` is ``None`` for a saved cluster. ``authority`` is ``None`` without self-signed certificates.
    """
    yield ReadinessCheck("snapshot", feed.problem())
    for kind, state in feed.states().items():
        yield _feed(f"feed/{kind}", state)
    if role := leadership.role():
        yield ReadinessCheck("leader", leadership.problem(), role)
    if authority is not None:
        yield ReadinessCheck("certificates", authority.trouble)
    if permissions is not None:
        yield from _permissions(permissions)


def _feed(name: str, state: FeedState) -> ReadinessCheck:
    summary = f"{state.state}, {state.objects} objects"
    if state.synced and state.state not in _FAILING:
        return ReadinessCheck(name, detail=summary)
    return ReadinessCheck(name, f"{summary}: {state.cause}" if state.cause else summary)


def _permissions(check: PermissionCheck) -> Iterator[ReadinessCheck]:
    """Yield one check for each rule in ``missing``: a successful one if only explain needs it, else a failed one.

    If none is missing, one successful check is yielded. If permissions are unknown, a failed check says so. A missing
    permission alone does not make the process unready. But if a required kind cannot be listed, the check of the
    snapshot fails.
    """
    if check.problem:
        yield ReadinessCheck("permissions", f"not checked: {check.problem}")
    for rule in check.missing:
        sentence = f"not allowed to {rule}, needed for {rule.purpose}"
        if rule.only_explains:
            yield ReadinessCheck("permissions", detail=sentence)
        else:
            yield ReadinessCheck("permissions", sentence)
    if not check.problem and not check.missing:
        yield ReadinessCheck("permissions")


def verbose(results: Iterable[ReadinessCheck], problem: str) -> str:
    """Return the body of ``/readyz?verbose``. Its last line depends on ``problem``, not on the single checks."""
    return "".join(f"{it}\n" for it in results) + f"readyz check {'failed' if problem else 'passed'}\n"
