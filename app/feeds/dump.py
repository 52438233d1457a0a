"""Dump of a live cluster to a file: objects of some kinds, with only the fields that Homeport decodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import suppress
from typing import IO, Any, Final

import msgspec
from msgspec import Struct

from app.feeds.documents import read_page
from app.kube.api_errors import ApiError, KubeError
from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.credentials import load
from app.kube.decoding import Decoder
from app.kube.kinds import NODES, PODS, Kind
from app.kube.projection import SCHEMAS, projected

_PAGE: Final = 500
"""Maximum number of objects on a page of a list."""

_ATTEMPTS: Final = 3
"""Maximum number of attempts at a list.

A list is repeated if a page fails with status 410: etcd has compacted the version of the list.
"""

_EXPIRED: Final = 410
_JSON: Final[Decoder[Any]] = Decoder(Any)


class DumpError(Exception):
    """Raised if the cluster cannot be read. The message names the kind and the cause."""


class DumpSummary(Struct, frozen=True):
    """Number of dumped objects by kind, and the kinds that the API server does not serve."""

    objects: Mapping[Kind[Any], int]
    not_served: tuple[Kind[Any], ...]


async def dump(
    kubeconfig: str | None, kinds: Iterable[Kind[Any]], node_annotations: Collection[str], file: IO[bytes]
) -> DumpSummary:
    """Write a List of all nodes, pods and objects of ``kinds`` to ``file``.

    ``kubeconfig``: path of the credentials; ``None``: see ``credentials.load``. ``node_annotations``: keys of the
    annotations of nodes that the dump includes. ``file`` must be seekable. Raises ``DumpError``, ``CredentialsError``
    and ``OSError``.
    """
    async with KubeClient(load(kubeconfig)) as client:
        return await dump_from(client, kinds, node_annotations, file)


async def dump_from(
    client: KubeClient, kinds: Iterable[Kind[Any]], node_annotations: Collection[str], file: IO[bytes]
) -> DumpSummary:
    """Like ``dump``, but reads with ``client``, which is already open. Raises ``DumpError`` and ``OSError``."""
    objects: dict[Kind[Any], int] = {}
    not_served: list[Kind[Any]] = []
    file.write(b'{"apiVersion": "v1", "kind": "List", "items": [')
    every: list[Kind[Any]] = [NODES, PODS, *kinds]
    for kind in dict.fromkeys(every):
        try:
            resource = await client.resolve(kind.api_version, kind.kind)
            if resource is None:
                not_served.append(kind)
                continue
            objects[kind] = await _write(
                client, resource, kind, node_annotations, file, first=not any(objects.values())
            )
        except ApiError as error:
            raise DumpError(f"{kind!r}: the API server refused: {error.message or error}") from error
        except KubeError as error:
            raise DumpError(f"{kind!r}: the API server ({client.server}) does not answer: {error}") from error
    file.write(b"\n]}\n")
    return DumpSummary(objects, tuple(not_served))


async def _write(
    client: KubeClient,
    resource: Resource,
    kind: Kind[Any],
    node_annotations: Collection[str],
    file: IO[bytes],
    *,
    first: bool,
) -> int:
    """Write the objects of a kind, except those that cannot be decoded, and return the number of written objects.

    If the list expires, its objects are removed from the file and the list is repeated.
    """
    start = file.tell()
    attempt = count = 0
    while True:
        try:
            async for item in _items(client, resource, kind):
                file.write(b"\n" if first and not count else b",\n")
                file.write(msgspec.json.encode(projected(kind, item, node_annotations)))
                count += 1
        except ApiError as error:
            attempt += 1
            if error.status != _EXPIRED or attempt == _ATTEMPTS:
                raise
            count = 0
            file.seek(start)
            file.truncate()
        else:
            return count


async def _items(client: KubeClient, resource: Resource, kind: Kind[Any]) -> AsyncIterator[Mapping[str, Any]]:
    token = ""
    while True:
        raw = await client.list_page(
            resource, limit=_PAGE, continue_=token, metadata_only=kind.metadata_only or kind not in SCHEMAS
        )
        page = await read_page(raw)
        for item in page.items or ():
            with suppress(msgspec.DecodeError):  # like a reflector, skip an object that cannot be decoded
                obj = _JSON.decode(item)
                if isinstance(obj, dict):
                    yield obj
        token = page.metadata.continue_ or ""
        if not token:
            return
