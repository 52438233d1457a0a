"""Responses of the API server to lists and watches. Of an object, only identifying metadata is decoded."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.api_errors import ApiUnavailable
from app.kube.decoding import Decoder
from app.kube.meta_v1 import ObjectKey

NOT_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector for pods that are not finished. kube-scheduler uses the same selector."""


class ListMeta(Struct, rename="camel"):
    """Metadata of a list. ``continue_``: token to request the next page; empty or ``None`` on the last page."""

    resource_version: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)


class Page(Struct):
    """Page of a list, with raw objects."""

    metadata: ListMeta
    items: list[Raw] | None = None


class Event(Struct):
    """Event of a watch, with a raw object."""

    type: str
    object: Raw


class Meta(Struct, rename="camel"):
    """Metadata of an object in a watch event. The object of a bookmark has a version but no name."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class Identified(Struct):
    """Object of which only the identifying metadata is decoded."""

    metadata: Meta


class _NameMeta(Struct):
    namespace: str | None = None
    name: str | None = None


class _NamedObject(Struct):
    metadata: _NameMeta


_PAGES: Final = Decoder[Page](Page)
EVENTS: Final = Decoder[Event](Event)
IDENTIFIED: Final = Decoder[Identified](Identified)
_NAMED: Final = Decoder[_NamedObject](_NamedObject)


async def read_page(raw: bytes) -> Page:
    """Decode a page of a list. Raises ``ApiUnavailable`` if ``raw`` is not a list or has no resource version."""
    try:
        page = await _PAGES.decode_in_steps(raw)
    except ValueError as error:
        raise ApiUnavailable(f"list: {error}") from error
    if not page.metadata.resource_version:
        raise ApiUnavailable("list: no resourceVersion")
    return page


def key_in(raw: Raw) -> ObjectKey:
    """Return namespace and name of an object; empty strings if they cannot be decoded."""
    try:
        meta = _NAMED.decode(raw).metadata
    except ValueError:
        return ("", "")
    return (meta.namespace or "", meta.name or "")
