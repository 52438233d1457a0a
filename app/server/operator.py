"""The operator's pages under /api/v1: what is running here, and is its bookkeeping right."""

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
"""Objects of a kind that are named."""


class ProfileStatus(BaseModel):
    """One profile as it runs."""

    scheduler_name: str
    preset: str = Field(description="What it starts from: delegated or complete.")
    bind_recheck: list[str] = Field(description="Plugins that are asked at bind and nowhere else.")
    at_most: int = Field(description="How many of the nodes that pass a lean answer names; 0 for all.")
    pick: bool = Field(description="Whether a lean answer names the best node alone.")
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
    """Where the objects of one kind come from, and how far along that is."""

    state: str = Field(description="listing, watching, not_served, forbidden, or saved for a cluster from a file")
    objects: int
    age_seconds: float = Field(description="Time since the watch was last heard of.")
    left_out: list[str] = Field(default=[], description="Objects that cannot be read, as namespace/name: ten of them.")

    @classmethod
    def of(cls, found: FeedState) -> Self:
        named = list(found.left_out[:_MOST_NAMED])
        return cls(state=found.state, objects=found.objects, age_seconds=found.age, left_out=named)


class LeaderStatus(BaseModel):
    """Who decides, where several replicas run."""

    here: bool = Field(description="Whether it is this replica.")
    identity: str = Field(description="Empty if nobody leads.")
    address: str = Field(description="host:port at which the other replicas reach it.")
    since: str = Field(description="When it took the lease, on its own clock.")
    replica: str = Field(description="The identity of this replica.")

    @classmethod
    def of(cls, leadership: Leadership) -> Self | None:
        """``None`` for a process alone."""
        if not leadership.identity:
            return None
        record = leadership.record
        found = ("", "", "")
        if record is not None and record.holder:
            found = (record.holder_shown, record.address, record.since)
        return cls(
            here=leadership.leads, identity=found[0], address=found[1], since=found[2], replica=leadership.identity
        )


class MissingRight(BaseModel):
    """Something that this process may not do."""

    right: str = Field(description="Verbs and resources: list, watch replicasets.apps")
    needed_for: str = Field(description="What does not work without it.")


class PermissionsStatus(BaseModel):
    """What the API server lets this process do, as far as the configuration needs it."""

    problem: str = Field(description="Why that could not be checked; empty if it could.")
    missing: list[MissingRight]

    @classmethod
    def of(cls, found: PermissionCheck) -> Self:
        missing = [MissingRight(right=str(rule), needed_for=rule.purpose) for rule in found.missing]
        return cls(problem=found.problem, missing=missing)


class Status(BaseModel):
    """What is running here."""

    version: str
    problem: str = Field(description="Why no decision can be taken; empty if all is well.")
    feeds: dict[str, FeedStatus]
    leader: LeaderStatus | None = Field(description="null where leaderElect is off.")
    permissions: PermissionsStatus | None = Field(description="null for a saved cluster.")
    assumed_pods: int
    counters: dict[str, dict[str, int]] = Field(
        description="Of each level of kept counts: entries, hits, misses, and bytes as estimated."
    )
    profiles: list[ProfileStatus]
    unserved: dict[str, int] = Field(
        description="Requests about pods of no profile here, which go unchecked, by schedulerName."
    )


class Check(BaseModel):
    """The result of counting everything anew."""

    consistent: bool
    differences: list[str]


def operator_router(found: Callable[[], Status], recount: Callable[[], Awaitable[list[str]]]) -> APIRouter:
    """Read-only pages; nothing here changes a decision. ``recount`` tells what differs from it."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])

    @router.get("/status", summary="Version, feeds, kept counts, profiles")
    async def status() -> Status:
        return found()

    @router.get("/check", summary="Recount every kept count and compare, while decisions go on")
    async def check() -> Check:
        differences = await recount()
        return Check(consistent=not differences, differences=differences)

    return router
