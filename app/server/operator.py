"""Pages for operators under /api/v1: status of the process, and a check of its caches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.feeds.feed import FeedState
from app.replicas.leadership import Leadership
from app.rights.access_review import PermissionCheck
from app.runtime.framework import Framework

_MOST_NAMED: Final = 10
"""Maximum number of unreadable objects of a kind that are listed by name."""


class ProfileStatus(BaseModel):
    """Profile in use, with its plugins."""

    scheduler_name: str
    preset: str = Field(description="Base of the profile: delegated or complete.")
    bind_recheck: list[str] = Field(description="Plugins whose filter runs at bind only.")
    at_most: int = Field(description="Maximum number of passing nodes in a lean answer; 0 for all.")
    pick: bool = Field(description="True if a lean answer has only the best node.")
    points: dict[str, list[str]] = Field(description="Plugins by extension point, in order.")

    @classmethod
    def of(cls, framework: Framework) -> Self:
        return cls(
            scheduler_name=framework.scheduler_name,
            preset=framework.preset,
            bind_recheck=list(framework.added_at_bind),
            at_most=framework.at_most,
            pick=framework.picks,
            points={point: [slot.name for slot in slots] for point, slots in framework.slots.items() if slots},
        )


class FeedStatus(BaseModel):
    """Feed of one kind: its state and number of objects."""

    state: str = Field(
        description="starting, listing, watching, retrying, forbidden or not_served; saved: read from a file; listed: "
        "read once by a command"
    )
    objects: int
    age_seconds: float = Field(
        description="Seconds since the last watch event, list or probe; 0 before the first list."
    )
    left_out: list[str] = Field(default=[], description="Objects that cannot be read, as namespace/name: ten at most.")

    @classmethod
    def of(cls, feed: FeedState) -> Self:
        named = list(feed.left_out[:_MOST_NAMED])
        return cls(state=feed.state, objects=feed.objects, age_seconds=feed.age, left_out=named)


class LeaderStatus(BaseModel):
    """Current leader of several replicas, and the identity of this replica."""

    here: bool = Field(description="True if this replica leads.")
    identity: str = Field(description="Name of the leader; empty if there is none.")
    address: str = Field(description="host:port at which other replicas reach the leader.")
    since: str = Field(description="Time at which the leader took the Lease, on its own clock.")
    replica: str = Field(description="The identity of this replica.")

    @classmethod
    def of(cls, leadership: Leadership) -> Self | None:
        """Return the status; ``None`` for a single process."""
        if not leadership.identity:
            return None
        record = leadership.record
        shown = ("", "", "")
        if record is not None and record.holder:
            shown = (record.holder_shown, record.address, record.since)
        return cls(
            here=leadership.leads, identity=shown[0], address=shown[1], since=shown[2], replica=leadership.identity
        )


class MissingRight(BaseModel):
    """Permission that this process lacks."""

    right: str = Field(description="Verbs and resources: list, watch replicasets.apps")
    needed_for: str = Field(description="Functions that fail without it.")


class PermissionsStatus(BaseModel):
    """Result of the check of permissions: those that the configuration requires and the API server does not grant."""

    problem: str = Field(description="Why the permissions could not be checked; empty if they were.")
    missing: list[MissingRight]

    @classmethod
    def of(cls, check: PermissionCheck) -> Self:
        missing = [MissingRight(right=str(rule), needed_for=rule.purpose) for rule in check.missing]
        return cls(problem=check.problem, missing=missing)


class ProcessStatus(BaseModel):
    """Status of this process."""

    version: str
    problem: str = Field(description="Why no decision is possible; empty if all is well.")
    saved_at: str | None = Field(
        description="RFC 3339: time at which the file of a saved cluster was last changed; null without a file."
    )
    feeds: dict[str, FeedStatus]
    leader: LeaderStatus | None = Field(description="null without leaderElect.")
    permissions: PermissionsStatus | None = Field(description="null for a saved cluster.")
    assumed_pods: int = Field(
        description="Number of pods that are counted on a node before the watch shows them bound."
    )
    counters: dict[str, dict[str, int]] = Field(
        description="Per level of cached counts: entries, hits, misses, and estimated bytes."
    )
    profiles: list[ProfileStatus]
    unserved: dict[str, int] = Field(
        description="Number of requests by schedulerName, about pods without a profile; these are not checked."
    )


class RecountResult(BaseModel):
    """Result of the check that computes all cached counts, verdicts and scores again."""

    consistent: bool = Field(description="True if there is no difference.")
    differences: list[str] = Field(description="One sentence for each difference.")


def operator_router(current: Callable[[], ProcessStatus], recount: Callable[[], Awaitable[list[str]]]) -> APIRouter:
    """Create the router of read-only pages. ``current`` returns the status. ``recount`` computes all cached counts,
    verdicts and scores again, and returns a sentence for each difference.
    """
    router = APIRouter(prefix="/api/v1", tags=["operator"])

    @router.get("/status", summary="Version, feeds, cached counts, profiles")
    async def status() -> ProcessStatus:
        return current()

    @router.get("/check", summary="Compute cached counts, verdicts and scores again, and compare")
    async def check() -> RecountResult:
        differences = await recount()
        return RecountResult(consistent=not differences, differences=differences)

    return router
