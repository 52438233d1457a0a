"""``GET /api/v1/homes``: list of homes, page by page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Response
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.homes.lists import HomeLists
from app.homes.protocol import Home, Keeper, Place, State, Whereabouts
from app.kube.core_v1 import Pod
from app.kube.decoding import Decoder
from app.kube.names import LONGEST
from app.kube.selectors import Selector
from app.runtime.guard import PluginError
from app.server.bodies import invalid, selector_in
from app.server.queries import KnownQuery, RequireNamespace
from app.verbs.context import Problem, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import run_stepwise

MOST: Final = 500
"""Maximum number of homes on a page."""

_STEP: Final = 128
_LONGEST_TOKEN: Final = 4096
_WRONG_TOKEN: Final = "not a token of an earlier page"  # noqa: S105  # no secret
_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    500: {"description": "A plugin failed; the message names it."},
    503: {"description": "The snapshot is incomplete or too old."},
}

_PLACE: Final = Decoder[Place](Place)


class _HomesPageModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class ListedOwner(_HomesPageModel):
    """Object that keeps the home."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = Field(description="UID of the owner, even if the owner is gone.")
    slot: str = Field(description="Ordinal of the pod, if each pod has a home; else empty.")


class ListedHome(_HomesPageModel):
    """Home and its state."""

    owner: ListedOwner
    node: str = Field(
        description="Home node, as written; quoted and shortened if it is not a valid name; empty: no home."
    )
    state: str = Field(
        description="State of the home: usable, away, leaving, gone, other_machine, volume_elsewhere, target or none; "
        "owner_gone if it is the remembered home of a deleted owner, and unknown if something cannot "
        "be read."
    )
    machine: Whereabouts = Field(
        description="Place of the home's pod: at home, on another node, waiting for a node, or no pod."
    )
    policy: str
    policy_source: str = Field(description="Object or setting that sets the policy.")
    since: str = Field(description="Start of the state, RFC 3339; empty if unknown.")
    mark: str = Field(description="Cause of the node's state, such as cordoned; empty without one.")
    pod: str = Field(description="The pod, of several the one in the most advanced phase; empty without one.")
    pod_node: str
    contradiction: str = Field(
        description="Contradiction between the home and other settings, as a sentence; mostly empty."
    )
    away: bool = Field(description="True if the node exists but accepts no pods now.")
    orphaned: bool = Field(description="True if the node does not exist or is another machine, or the owner is gone.")


class KeeperKind(_HomesPageModel):
    """Kind whose objects keep homes."""

    api_version: str
    kind: str
    plugin: str
    per_slot: bool = Field(description="True if each pod of an object has its own home, by its ordinal.")


class HomesPage(_HomesPageModel):
    """Homes sorted by namespace, kind, name and slot."""

    keepers: list[KeeperKind]
    items: list[ListedHome]
    continue_: str = Field(alias="continue", description="Token for the next page; empty on the last page.")
    remaining: int = Field(description="Homes on later pages.")


class HomesQuery(KnownQuery):
    """Query for the homes that match all given parameters."""

    limit: int = Field(default=100, ge=1, le=MOST, description="Maximum number of homes on a page.")
    continue_: str = Field(
        default="", alias="continue", max_length=_LONGEST_TOKEN, description="Token from the previous page."
    )
    node: str = Field(default="", max_length=LONGEST, description="Homes on this node.")
    pod_node: str = Field(default="", max_length=LONGEST, description="Homes whose pod is on this node.")
    namespace: str = Field(default="", max_length=LONGEST)
    kind: str = Field(default="", max_length=LONGEST, description="Kind of the owner.")
    name: str = Field(default="", max_length=LONGEST, description="Name of the owner.")
    state: State | None = Field(
        default=None,
        description="State of the home. none: pods of owners without a home, which are not listed otherwise.",
    )
    machine: Whereabouts | None = Field(default=None, description="Place of the pod.")
    label_selector: str = Field(default="", description="Must match the pod of the home; in kubectl's notation.")
    orphaned: bool | None = Field(default=None, description="True: homes whose node or owner is gone.")
    away: bool | None = Field(default=None, description="True: homes whose node accepts no pods now.")
    contradictory: bool | None = Field(default=None, description="True: homes with a contradiction.")

    def admits(self, home: Home) -> bool:
        """Return true if the home matches all given parameters, except ``label_selector`` and those of the paging.

        An entry for a pod without a home matches only with the ``state`` none.
        """
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
    """Result of ``_paged``. ``places``: places of ``homes``, sorted. ``remaining``: number of homes on later pages."""

    places: list[Place] = []
    homes: dict[Place, Home] = {}
    remaining: int = 0


def homes_router(
    homes: HomeLists,
    problem: Problem,
    require_namespace: RequireNamespace,
    pod_of: Callable[[str, str], Pod | None],
) -> APIRouter:
    """Create the router. It reads the snapshot in short steps and changes nothing.

    ``pod_of``: returns a pod by namespace and name; ``None`` if there is none.
    """
    router = APIRouter(prefix="/api/v1", tags=["operator"])

    @router.get("/homes", response_model=HomesPage, responses=_FAILURES, summary="Homes: owner, node, state and policy")
    async def who_lives_where(query: Annotated[HomesQuery, Query()]) -> Response:
        after = _place(query.continue_)
        selector = selector_in(query.label_selector)
        require_snapshot(problem)
        if query.namespace:
            require_namespace(query.namespace)

        def admits(home: Home) -> bool:
            return query.admits(home) and (not query.label_selector or _selects(selector, home, pod_of))

        page = _Page()
        try:
            keepers = tuple(dict.fromkeys(homes.keepers()))
            await run_stepwise(_paged(homes.homes, admits, query.limit, after, page))
        except PluginError as fault:
            raise VerbFailure("fault", fault.status.message) from fault
        return Response(msgspec.json.encode(_answer(keepers, page)), media_type="application/json")

    return router


async def unusable_homes(homes: HomeLists, most: int) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of homes that are away or orphaned, and the first ``most`` of them, sorted by place.

    The homes are in the form of ``ListedHome``. Raises ``VerbFailure``.
    """
    page = _Page()
    try:
        await run_stepwise(_paged(homes.homes, _is_unusable, most, None, page))
    except PluginError as fault:
        raise VerbFailure("fault", fault.status.message) from fault
    return len(page.homes) + page.remaining, [listed(it) for it in page.homes.values()]


def _paged(
    each: Callable[[], Iterator[Home | None]],
    admits: Callable[[Home], bool],
    limit: int,
    after: Place | None,
    page: _Page,
) -> Iterator[None]:
    """Fill ``page``, in steps, with the first ``limit`` homes that ``admits`` accepts.

    ``after``: place after which the page begins; ``None`` for the first page. ``each``: yields all homes. If several
    profiles list a home, the profile that schedules its pod takes precedence.
    """
    homes: dict[Place, Home] = {}
    for home in each():
        if home is None:
            yield
            continue
        place = home.owner.place
        known = homes.get(place)
        if known is None or (home.is_judged and not known.is_judged):
            homes[place] = home
    nearest: list[Place] = []
    count = 0
    for number, (place, home) in enumerate(homes.items()):
        if number % _STEP == _STEP - 1:
            yield
        if (after is None or place > after) and admits(home):
            count += 1
            nearest.append(place)
            if len(nearest) > 2 * MOST:
                nearest = sorted(nearest)[:limit]
    page.places = sorted(nearest)[:limit]
    page.homes = {place: homes[place] for place in page.places}
    page.remaining = count - len(page.places)


def _is_unusable(home: Home) -> bool:
    """Return True for a home whose node accepts no pods now, or that is orphaned."""
    return bool(home.node) and (home.is_away or home.is_orphaned)


def _selects(selector: Selector, home: Home, pod_of: Callable[[str, str], Pod | None]) -> bool:
    """Return True if the selector matches the home's pod. A home without a pod never matches."""
    pod = pod_of(home.owner.namespace, home.pod) if home.pod else None
    return pod is not None and selector.matches(pod.labels)


def _place(token: str) -> Place | None:
    """Decode a token: return the place of the last home of the previous page; ``None`` for an empty token.

    Raises ``RequestValidationError`` for an invalid token.
    """
    if not token:
        return None
    try:
        return _PLACE.decode(base64.urlsafe_b64decode(token.encode("ascii")))
    except (msgspec.DecodeError, binascii.Error, UnicodeError):
        raise invalid("query", "continue", _WRONG_TOKEN) from None


def _answer(keepers: Iterable[tuple[str, Keeper]], page: _Page) -> dict[str, Any]:
    """Return ``page`` and ``keepers`` as JSON in the form of ``HomesPage``."""
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
    """Return the home as JSON in the form of ``ListedHome``."""
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
