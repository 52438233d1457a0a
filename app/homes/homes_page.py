"""``GET /api/v1/homes``: who lives where, page by page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, HTTPException, Query, Response
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.homes.lists import HomeLists
from app.homes.protocol import Home, Keeper, State, Whereabouts
from app.kube.decoding import Decoder
from app.kube.names import LONGEST
from app.runtime.guard import PluginError
from app.verbs.context import Problem, require_picture
from app.verbs.outcome import VerbFailure
from app.verbs.slices import in_slices

MOST: Final = 500
"""Homes on a page."""

_STEP: Final = 128
_LONGEST_TOKEN: Final = 4096
_WRONG_TOKEN: Final = "homeport: continue: not what an earlier page gave"  # noqa: S105  # no secret
_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    500: {"description": "A plugin failed; detail names it."},
    503: {"description": "The picture is incomplete or too old."},
}

Place = tuple[str, str, str, int, str, str]
"""Namespace, kind, name, length of the slot, slot, apiVersion: pages are in this order, ordinals in that of numbers."""

_PLACE: Final = Decoder[Place](Place)


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Owner(_Model):
    """The object that keeps the home."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = Field(description="Of an owner that is gone: that which it had.")
    slot: str = Field(description="The ordinal of the pod whose home it is; empty where there is one home.")


class ListedHome(_Model):
    """A home, and how it is about it."""

    owner: Owner
    node: str = Field(description="As it is written; in quotes, and cut, where that is no name. Empty: no home.")
    state: str = Field(
        description="Of the home: usable, away, leaving, gone, other_machine, volume_elsewhere, target or none; "
        "owner_gone where it is remembered of an owner that is not there any more, and unknown where something cannot "
        "be read."
    )
    machine: Whereabouts = Field(
        description="Of its pod: there, on another node, waiting for a node, or there is none."
    )
    policy: str
    policy_source: str = Field(description="Whose word the policy is.")
    since: str = Field(description="When the state began, RFC 3339; empty if nobody knows.")
    mark: str = Field(description="What says so of the node, as cordoned; empty where nothing has to.")
    pod: str = Field(description="The pod that got furthest; empty without one.")
    pod_node: str
    contradiction: str = Field(description="What cannot both be, in a sentence; mostly empty.")
    away: bool = Field(description="The node is there, and takes no pods now.")
    orphaned: bool = Field(description="There is no such node, it is another machine, or the owner is gone.")


class KeeperKind(_Model):
    """A kind whose objects keep homes."""

    api_version: str
    kind: str
    plugin: str
    per_slot: bool = Field(description="Each of its pods has a home of its own, by its ordinal.")


class HomesPage(_Model):
    """Homes by namespace, kind, name and slot."""

    keepers: list[KeeperKind]
    items: list[ListedHome]
    continue_: str = Field(alias="continue", description="For the next page; empty on the last.")
    remaining: int = Field(description="Homes on later pages.")


class HomesQuery(BaseModel):
    """Which homes: those that all of what is given says. A word that there is not is refused."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    limit: int = Field(default=100, ge=1, le=MOST, description="The most on a page.")
    continue_: str = Field(default="", alias="continue", max_length=_LONGEST_TOKEN, description="Of the page before.")
    node: str = Field(default="", max_length=LONGEST, description="Homes on this node.")
    pod_node: str = Field(default="", max_length=LONGEST, description="Those whose pod is on this node.")
    namespace: str = Field(default="", max_length=LONGEST)
    kind: str = Field(default="", max_length=LONGEST, description="Kind of the owner.")
    name: str = Field(default="", max_length=LONGEST, description="Name of the owner.")
    state: str = Field(
        default="",
        max_length=LONGEST,
        description="With none: pods of owners that have no home. They are on no other page.",
    )
    machine: Whereabouts | None = Field(default=None, description="Of the pod.")
    orphaned: bool | None = Field(default=None, description="Whether the node, or the owner, is gone for good.")
    away: bool | None = Field(default=None, description="Whether the node takes no pods now.")
    contradictory: bool | None = Field(default=None, description="Whether something cannot both be.")

    def admits(self, home: Home) -> bool:
        """Whether the home is asked for, wherever it stands."""
        owner = home.owner
        texts = (
            (self.node, home.node),
            (self.pod_node, home.pod_node),
            (self.namespace, owner.namespace),
            (self.kind, owner.kind),
            (self.name, owner.name),
            (self.state, home.state),
            (self.machine, home.machine),
        )
        flags = (
            (self.orphaned, home.is_orphaned),
            (self.away, home.is_away),
            (self.contradictory, bool(home.contradiction)),
        )
        return (
            (bool(home.node) or self.state == State.NONE)
            and all(not asked or asked == found for asked, found in texts)
            and all(asked is None or asked == found for asked, found in flags)
        )


class _Page(Struct):
    places: list[Place] = []
    homes: dict[Place, Home] = {}
    remaining: int = 0


def homes_router(homes: HomeLists, problem: Problem) -> APIRouter:
    """It reads the picture in slices; nothing is changed."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])

    @router.get("/homes", response_model=HomesPage, responses=_FAILURES, summary="Who lives where")
    async def who_lives_where(asked: Annotated[HomesQuery, Query()]) -> Response:
        after = _place(asked.continue_)
        require_picture(problem)
        page = _Page()
        try:
            keepers = tuple(dict.fromkeys(homes.keepers()))
            await in_slices(_paged(homes.homes, asked, after, page))
        except PluginError as fault:
            raise VerbFailure("fault", fault.status.message) from fault
        return Response(msgspec.json.encode(_answer(keepers, page)), media_type="application/json")

    return router


def _paged(
    each: Callable[[], Iterator[Home | None]], asked: HomesQuery, after: Place | None, page: _Page
) -> Iterator[None]:
    """Fills ``page``. Of a home that several profiles list, the one counts that judges its pod."""
    found: dict[Place, Home] = {}
    for home in each():
        if home is None:
            yield
            continue
        place = _place_of(home)
        known = found.get(place)
        if known is None or (home.is_judged and not known.is_judged):
            found[place] = home
    nearest: list[Place] = []
    count = 0
    for number, (place, home) in enumerate(found.items()):
        if number % _STEP == _STEP - 1:
            yield
        if (after is None or place > after) and asked.admits(home):
            count += 1
            nearest.append(place)
            if len(nearest) > 2 * MOST:
                nearest = sorted(nearest)[: asked.limit]
    page.places = sorted(nearest)[: asked.limit]
    page.homes = {place: found[place] for place in page.places}
    page.remaining = count - len(page.places)


def _place_of(home: Home) -> Place:
    owner = home.owner
    return (owner.namespace, owner.kind, owner.name, len(owner.slot), owner.slot, owner.api_version)


def _place(token: str) -> Place | None:
    if not token:
        return None
    try:
        return _PLACE.decode(base64.urlsafe_b64decode(token.encode("ascii")))
    except (msgspec.DecodeError, binascii.Error, UnicodeError):
        raise HTTPException(422, _WRONG_TOKEN) from None


def _answer(keepers: Iterable[tuple[str, Keeper]], page: _Page) -> dict[str, Any]:
    """A ``HomesPage``."""
    last = page.places[-1] if page.remaining else None
    return {
        "keepers": [
            {"apiVersion": it.api_version, "kind": it.kind, "plugin": plugin, "perSlot": it.per_slot}
            for plugin, it in keepers
        ],
        "items": [listed(it) for it in page.homes.values()],
        "continue": "" if last is None else base64.urlsafe_b64encode(msgspec.json.encode(last)).decode(),
        "remaining": page.remaining,
    }


def listed(home: Home) -> dict[str, Any]:
    """A ``ListedHome``."""
    owner = home.owner
    return {
        "owner": {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "namespace": owner.namespace,
            "name": owner.name,
            "uid": owner.uid,
            "slot": owner.slot,
        },
        "node": home.node,
        "state": home.state,
        "machine": home.machine,
        "policy": home.policy or "",
        "policySource": home.policy_source,
        "since": home.since,
        "mark": home.mark,
        "pod": home.pod,
        "podNode": home.pod_node,
        "contradiction": home.contradiction,
        "away": home.is_away,
        "orphaned": home.is_orphaned,
    }
