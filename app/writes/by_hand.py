"""What a person has changed by a command: one annotation of one object, with that person's own rights.

The object's version is a precondition. Status moves it all the time, so what changed otherwise is read and tried anew;
where the annotation itself changed, the person decides again.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from app.kube.api_errors import ApiError, KubeError, UnknownOutcome
from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.credentials import load
from app.kube.decoding import Decoder
from app.kube.names import is_subdomain, shown

_ATTEMPTS: Final = 5
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_NODES: Final = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False)


class ByHandError(Exception):
    """Nothing was changed, or nobody knows; a sentence for the person who asked."""


class Target(Struct, frozen=True):
    """An annotation of an object. Its string is ``VirtualMachine machines/db01``."""

    api_version: str
    kind: str
    namespace: str
    name: str
    annotation: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Object(Struct):
    metadata: _Metadata

    def value(self, target: Target) -> str:
        return (self.metadata.annotations or {}).get(target.annotation, "")


_OBJECT: Final = Decoder[_Object](_Object)


async def change(kubeconfig: str | None, target: Target, value: str | None, *, check_node: bool = False) -> str:
    """Set the annotation, or with ``None`` remove it; returns what stood there, empty for nothing.

    To remove what is not there changes nothing, nor does setting what is. ``check_node``: ``value`` must be a node.
    Raises ``ByHandError``, and ``CredentialsError`` where there is no cluster to ask.
    """
    async with KubeClient(load(kubeconfig)) as client:
        return await changed(client, target, value, check_node=check_node)


async def changed(client: KubeClient, target: Target, value: str | None, *, check_node: bool = False) -> str:
    """The same by a client that is there."""
    try:
        return await _changed(client, target, value, check_node=check_node)
    except UnknownOutcome as unclear:
        raise ByHandError(f"{target}: nobody knows whether that was written, look again: {unclear}") from unclear
    except ApiError as refused:
        raise ByHandError(f"{target}: the API server refused: {refused.message or refused}") from refused
    except KubeError as error:
        raise ByHandError(f"the API server ({client.server}) does not answer: {error}") from error


async def _changed(client: KubeClient, target: Target, value: str | None, *, check_node: bool) -> str:
    """Raises ``ByHandError`` and ``KubeError``."""
    resource = await client.resolve(target.api_version, target.kind)
    if resource is None:
        raise ByHandError(f"the cluster does not serve {target.api_version} {target.kind}")
    found = await _read(client, resource, target)
    before = found.value(target)
    if before == (value or ""):
        return before
    if check_node and value is not None:
        await _require_node(client, value)
    for _ in range(_ATTEMPTS):
        metadata = {"resourceVersion": found.metadata.resource_version, "annotations": {target.annotation: value}}
        try:
            await client.patch(resource, target.namespace, target.name, {"metadata": metadata}, metadata_only=True)
        except ApiError as refused:
            if refused.status != _CONFLICT:
                raise
        else:
            return before
        known, found = found, await _read(client, resource, target)
        if found.metadata.uid != known.metadata.uid:
            raise ByHandError(f"{target} was deleted and made anew meanwhile; nothing was changed")
        if (now := found.value(target)) != before:
            raise ByHandError(f"{target}: {target.annotation} became {shown(now)} meanwhile; nothing was changed")
    raise ByHandError(f"{target}: it changes all the time; nothing was changed, try again")


async def _read(client: KubeClient, resource: Resource, target: Target) -> _Object:
    try:
        raw = await client.get(resource, target.namespace, target.name, metadata_only=True)
        return _OBJECT.decode(raw)
    except ApiError as refused:
        if refused.status == _NOT_FOUND:
            raise ByHandError(f"there is no {target}") from None
        raise
    except msgspec.DecodeError as error:
        raise ByHandError(f"{target} cannot be read: {error}") from None


async def _require_node(client: KubeClient, name: str) -> None:
    anyway = "--force writes it all the same"
    if not is_subdomain(name):
        raise ByHandError(f"{shown(name)} cannot be the name of a node: {anyway}")
    try:
        await client.get(_NODES, "", name, metadata_only=True)
    except ApiError as refused:
        if refused.status == _NOT_FOUND:
            raise ByHandError(f"there is no node {name}: {anyway}") from None
        if refused.status == _FORBIDDEN:
            raise ByHandError(f"whether there is a node {name} you may not ask: {anyway}") from None
        raise
