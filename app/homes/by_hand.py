"""What a person has changed by a command: one annotation of one object, with that person's own rights.

A home may also be remembered of an object that is gone, in a Home of its name: to release that is to delete the Home.

The object's version is a precondition. Status moves it all the time, so what changed otherwise is read and tried anew;
where the annotation itself changed, the person decides again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from msgspec import Struct

from app.kube.api_errors import ApiError, KubeError, UnknownOutcome
from app.kube.api_requests import NODES, Resource
from app.kube.client import KubeClient
from app.kube.credentials import load
from app.kube.decoding import Decoder
from app.kube.homes_v1alpha1 import API_VERSION, KIND, Home, Keeper, decode_home, memory_name
from app.kube.names import is_subdomain, shown

_ATTEMPTS: Final = 5
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class ByHandError(Exception):
    """Nothing was changed, or nobody knows; a sentence for the person who asked."""


class _NotThere(ByHandError):
    """There is no such object."""


class Target(Struct, frozen=True):
    """An annotation of an object. Its string is ``VirtualMachine machines/db01``. ``slot``: whose home it is there."""

    api_version: str
    kind: str
    namespace: str
    name: str
    annotation: str
    slot: str = ""

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


class Released(Struct, frozen=True):
    """``before``: what was the home, empty for none. ``remembered``: of an object that is gone, and now forgotten."""

    before: str
    remembered: bool = False


async def change(kubeconfig: str | None, target: Target, value: str | None, *, check_node: bool = False) -> str:
    """Set the annotation, or with ``None`` remove it; returns what stood there, empty for nothing.

    To remove what is not there changes nothing, nor does setting what is. ``check_node``: ``value`` must be a node.
    Raises ``ByHandError``, and ``CredentialsError`` where there is no cluster to ask.
    """
    async with KubeClient(load(kubeconfig)) as client:
        return await changed(client, target, value, check_node=check_node)


async def release(kubeconfig: str | None, target: Target) -> Released:
    """Remove the annotation, or where none is there what is remembered under the object's name. Raises the same."""
    async with KubeClient(load(kubeconfig)) as client:
        return await released(client, target)


async def released(client: KubeClient, target: Target) -> Released:
    """The same by a client that is there."""
    with _told(client, target):
        return await _released(client, target)


async def changed(client: KubeClient, target: Target, value: str | None, *, check_node: bool = False) -> str:
    """The same by a client that is there."""
    with _told(client, target):
        return await _changed(client, target, value, check_node=check_node)


@contextmanager
def _told(client: KubeClient, target: Target) -> Iterator[None]:
    """Turns what the API server says into what a person is told."""
    try:
        yield
    except UnknownOutcome as unclear:
        raise ByHandError(f"{target}: nobody knows whether that was written, look again: {unclear}") from unclear
    except ApiError as refused:
        raise ByHandError(f"{target}: the API server refused: {refused.message or refused}") from refused
    except KubeError as error:
        raise ByHandError(f"the API server ({client.server}) does not answer: {error}") from error


async def _released(client: KubeClient, target: Target) -> Released:
    """Raises ``ByHandError`` and ``KubeError``."""
    for _ in range(_ATTEMPTS):
        gone: _NotThere | None = None
        uid: str | None = None  # and not empty, as that of a Home may be
        try:
            resource, found = await _found(client, target)
            uid = found.metadata.uid
            if found.value(target):
                return Released(await _written(client, resource, target, found, None))
        except _NotThere as missing:
            gone = missing
        memory = await client.resolve(API_VERSION, KIND)
        home = None if memory is None else await _remembered(client, memory, target, is_there=gone is None)
        if memory is None or home is None or home.keeper.uid == uid:  # its own: of no meaning, once it has no home
            if gone is not None:
                raise gone
            return Released("")
        if await _is_deleted(client, memory, home):
            with suppress(_NotThere):  # made anew meanwhile, it may have been given the home
                await _changed(client, target, None, check_node=False)
            return Released(home.node, remembered=gone is not None)
    raise ByHandError(f"{target}: what is remembered of it changes all the time; nothing was changed, try again")


async def _is_deleted(client: KubeClient, resource: Resource, home: Home) -> bool:
    """Whether it was, in the version that was read. Raises ``KubeError``."""
    try:
        await client.delete(resource, home.namespace, home.name, uid=home.uid, resource_version=home.resource_version)
    except ApiError as refused:
        if refused.status in (_CONFLICT, _NOT_FOUND):
            return False
        raise
    return True


async def _remembered(client: KubeClient, resource: Resource, target: Target, *, is_there: bool) -> Home | None:
    """What is remembered under the object's name; ``None`` for nothing, and for a Home that says it is another's.

    ``is_there``: whether there is such an object. Raises ``ByHandError`` and ``KubeError``.
    """
    name = memory_name(target.api_version, target.kind, target.name, target.slot)
    try:
        home = decode_home(await client.get(resource, target.namespace, name))
    except ApiError as refused:
        if refused.status == _NOT_FOUND:
            return None
        if refused.status == _FORBIDDEN and is_there:
            asked = "whether that of an earlier one is remembered you may not ask"
            raise ByHandError(f"{target} has no home; {asked}: {refused.message or refused}") from refused
        raise
    except msgspec.DecodeError as error:
        raise ByHandError(f"Home {target.namespace}/{name} cannot be read: {error}") from None
    keeper = Keeper(target.api_version, target.kind, target.name, home.keeper.uid, target.slot)
    return home if home.keeper == keeper else None


async def _changed(client: KubeClient, target: Target, value: str | None, *, check_node: bool) -> str:
    """Raises ``ByHandError`` and ``KubeError``."""
    resource, found = await _found(client, target)
    before = found.value(target)
    if before == (value or ""):
        return before
    if check_node and value is not None:
        await _require_node(client, value)
    return await _written(client, resource, target, found, value)


async def _found(client: KubeClient, target: Target) -> tuple[Resource, _Object]:
    """Raises ``ByHandError``, ``_NotThere`` where there is none, and ``KubeError``."""
    resource = await client.resolve(target.api_version, target.kind)
    if resource is None:
        raise _NotThere(f"the cluster does not serve {target.api_version} {target.kind}")
    return resource, await _read(client, resource, target)


async def _written(client: KubeClient, resource: Resource, target: Target, found: _Object, value: str | None) -> str:
    """What stood there. Raises ``ByHandError`` and ``KubeError``."""
    before = found.value(target)
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
            raise _NotThere(f"there is no {target}") from None
        raise
    except msgspec.DecodeError as error:
        raise ByHandError(f"{target} cannot be read: {error}") from None


async def _require_node(client: KubeClient, name: str) -> None:
    anyway = "--force writes it all the same"
    if not is_subdomain(name):
        raise ByHandError(f"{shown(name)} cannot be the name of a node: {anyway}")
    try:
        await client.get(NODES, "", name, metadata_only=True)
    except ApiError as refused:
        if refused.status == _NOT_FOUND:
            raise ByHandError(f"there is no node {name}: {anyway}") from None
        if refused.status == _FORBIDDEN:
            raise ByHandError(f"whether there is a node {name} you may not ask: {anyway}") from None
        raise
