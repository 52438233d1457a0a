"""What ``/readyz?verbose`` tells, a line each: the picture, every feed, who leads, what is not allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from app.feeds.feed import Feed, FeedState
from app.replicas.authority import Authority
from app.replicas.leadership import Leadership
from app.rights.access_review import PermissionCheck

_FAILING: Final = frozenset({"forbidden", "retrying"})


class Check(Struct, frozen=True):
    """``problem``: empty if all is well. ``told`` is said about it then."""

    name: str
    problem: str = ""
    told: str = ""

    def __str__(self) -> str:
        """As kube-apiserver puts it."""
        if self.problem:
            return f"[-]{self.name} failed: {self.problem}"
        return f"[+]{self.name} ok: {self.told}" if self.told else f"[+]{self.name} ok"


def checks(
    feed: Feed, leadership: Leadership, permissions: PermissionCheck | None, authority: Authority | None = None
) -> Iterator[Check]:
    """``permissions`` is ``None`` for a saved cluster, ``authority`` without one."""
    yield Check("picture", feed.problem())
    for kind, state in feed.states().items():
        yield _feed(f"feed/{kind}", state)
    if role := leadership.role():
        yield Check("leader", leadership.problem(), role)
    if authority is not None:
        yield Check("certificates", authority.trouble)
    if permissions is not None:
        yield from _permissions(permissions)


def _feed(name: str, found: FeedState) -> Check:
    told = f"{found.state}, {found.objects} objects"
    if found.synced and found.state not in _FAILING:
        return Check(name, told=told)
    return Check(name, f"{told}: {found.cause}" if found.cause else told)


def _permissions(found: PermissionCheck) -> Iterator[Check]:
    """These fail without making the process unready: what cannot be decided without is missing from the picture."""
    if found.problem:
        yield Check("permissions", f"not checked: {found.problem}")
    for rule in found.missing:
        yield Check("permissions", f"may not {rule}, needed for {rule.purpose}")
    if not found.problem and not found.missing:
        yield Check("permissions")


def verbose(found: Iterable[Check], problem: str) -> str:
    """The whole answer. Whether it is ready, ``problem`` says, and not the sum of the lines."""
    return "".join(f"{it}\n" for it in found) + f"readyz check {'failed' if problem else 'passed'}\n"
