"""What a list and a watch are answered with, as far as it is read before an object is: versions, names, raw objects."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.api_errors import ApiUnavailable
from app.kube.decoding import Decoder
from app.kube.meta_v1 import ObjectKey


class ListMeta(Struct, rename="camel"):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)


class Page(Struct):
    metadata: ListMeta
    items: list[Raw] | None = None


class Event(Struct):
    type: str
    object: Raw


class Meta(Struct, rename="camel"):
    """A bookmark has a version and no name."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class Identified(Struct):
    metadata: Meta


class _Name(Struct):
    namespace: str | None = None
    name: str | None = None


class _Named(Struct):
    metadata: _Name


_PAGES: Final = Decoder[Page](Page)
EVENTS: Final = Decoder[Event](Event)
IDENTIFIED: Final = Decoder[Identified](Identified)
_NAMED: Final = Decoder[_Named](_Named)


async def read_page(raw: bytes) -> Page:
    """Raises ``ApiUnavailable`` for what is no list, or has no version."""
    try:
        page = await _PAGES.decode_in_steps(raw)
    except ValueError as error:
        raise ApiUnavailable(f"list: {error}") from error
    if not page.metadata.resource_version:
        raise ApiUnavailable("list: no resourceVersion")
    return page


def key_in(raw: Raw) -> ObjectKey:
    """Namespace and name; empty for what has none that can be read."""
    try:
        meta = _NAMED.decode(raw).metadata
    except ValueError:
        return ("", "")
    return (meta.namespace or "", meta.name or "")
