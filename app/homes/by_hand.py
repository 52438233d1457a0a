"""Commands that change a home by hand: each changes one annotation of one object, with the user's kubeconfig.

A Home object can remember the home of a deleted object, for a new object of the same name. Releasing such a home
deletes the Home object.

The resourceVersion is a precondition of each write. Status updates change it often, so after a conflict the object is
read again and the write is repeated. If the annotation itself has changed, the command fails, and the user must decide
again.
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
from app.kube.credentials import Login
from app.kube.decoding import Decoder
from app.kube.homes_v1alpha1 import API_VERSION, KIND, HomeRecord, RecordedKeeper, decode_home, memory_name
from app.kube.names import is_subdomain, shown

_ATTEMPTS: Final = 5
"""Maximum number of attempts. Another one follows only if the object or its Home changed meanwhile."""

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class ByHandError(Exception):
    """Raised if the command failed, or if its outcome is unknown. The message is for the user.

    Nothing was changed, except that ``release`` can already have deleted the Home object.
    """


class MissingObject(ByHandError):
    """Raised if the object, or its kind, does not exist."""


class AnnotationTarget(Struct, frozen=True):
    """Annotation of an object. The text form names the object, such as ``VirtualMachine machines/db01``.

    ``slot``: ordinal of the pod if each pod of the object has its own home; else empty.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    annotation: str
    slot: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class _ObjectMetadata(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Object(Struct):
    metadata: _ObjectMetadata

    def value(self, target: AnnotationTarget) -> str:
        """Return the value of the annotation; empty if the object does not have it."""
        return (self.metadata.annotations or {}).get(target.annotation, "")


_OBJECT: Final = Decoder[_Object](_Object)


class Released(Struct, frozen=True):
    """Result of a release. ``before``: the former home; empty if there was none.

    ``remembered``: true if the object does not exist, so that only its remembered home was released.
    """

    before: str
    remembered: bool = False


async def change(login: Login, target: AnnotationTarget, value: str | None, *, check_node: bool = False) -> str:
    """Set the annotation, or remove it with ``None``. Return its former value; empty if there was none.

    Writes nothing if the annotation already has this value. ``check_node``: ``value`` must name an existing node.
    Raises ``ByHandError``, and ``CredentialsError`` without a usable kubeconfig.
    """
    async with KubeClient(login.credentials()) as client:
        return await changed(client, target, value, check_node=check_node)


async def release(login: Login, target: AnnotationTarget) -> Released:
    """Remove the annotation. If there is none, delete the Home object of a deleted object with this name.

    Raises ``ByHandError``, also if neither the object nor such a Home exists, and ``CredentialsError``.
    """
    async with KubeClient(login.credentials()) as client:
        return await released(client, target)


async def released(client: KubeClient, target: AnnotationTarget) -> Released:
    """Like ``release``, with an existing client. Raises ``ByHandError``."""
    with _user_errors(client, target):
        return await _released(client, target)


async def changed(client: KubeClient, target: AnnotationTarget, value: str | None, *, check_node: bool = False) -> str:
    """Like ``change``, with an existing client. Raises ``ByHandError``."""
    with _user_errors(client, target):
        resource, obj = await _lookup(client, target)
        before = obj.value(target)
        if before == (value or ""):
            return before
        if check_node and value is not None:
            await _require_node(client, value)
        return await _write(client, resource, target, obj, value)


@contextmanager
def _user_errors(client: KubeClient, target: AnnotationTarget) -> Iterator[None]:
    """Convert ``KubeError`` into a ``ByHandError`` with a message for the user."""
    try:
        yield
    except UnknownOutcome as unclear:
        raise ByHandError(f"{target}: the outcome of the write is unknown, check the object: {unclear}") from unclear
    except ApiError as refused:
        raise ByHandError(f"{target}: the API server refused: {refused.message or refused}") from refused
    except KubeError as error:
        raise ByHandError(f"the API server ({client.server}) does not answer: {error}") from error


async def _released(client: KubeClient, target: AnnotationTarget) -> Released:
    """Release the home, see ``release``. Raises ``ByHandError`` and ``KubeError``."""
    for _ in range(_ATTEMPTS):
        gone: MissingObject | None = None
        uid: str | None = None  # ``None``: no such object; an empty text could equal an empty UID in a Home
        try:
            resource, obj = await _lookup(client, target)
            uid = obj.metadata.uid
            if obj.value(target):
                return Released(await _write(client, resource, target, obj, None))
        except MissingObject as missing:
            gone = missing
        memory = await client.resolve(API_VERSION, KIND)
        home = None if memory is None else await _remembered(client, memory, target, is_there=gone is None)
        if memory is None or home is None or home.keeper.uid == uid:  # a Home of an existing object has no effect
            if gone is not None:
                raise gone
            return Released("")
        if await _delete_unchanged(client, memory, home):
            with suppress(MissingObject):  # the object can have been recreated with the home
                await changed(client, target, None)
            return Released(home.node, remembered=gone is not None)
    raise ByHandError(f"{target}: its remembered home keeps changing; nothing was changed, try again")


async def _delete_unchanged(client: KubeClient, resource: Resource, home: HomeRecord) -> bool:
    """Delete the Home. Return False, without deleting it, if it has changed since it was read, or is gone.

    Raises ``KubeError``.
    """
    try:
        await client.delete(resource, home.namespace, home.name, uid=home.uid, resource_version=home.resource_version)
    except ApiError as refused:
        if refused.status in (_CONFLICT, _NOT_FOUND):
            return False
        raise
    return True


async def _remembered(
    client: KubeClient, resource: Resource, target: AnnotationTarget, *, is_there: bool
) -> HomeRecord | None:
    """Return the Home for the object's kind, name and slot, whatever the UID of its owner; ``None`` if there is none.

    ``is_there``: true if the object exists. Raises ``ByHandError`` and ``KubeError``.
    """
    name = memory_name(target.api_version, target.kind, target.name, target.slot)
    try:
        home = decode_home(await client.get(resource, target.namespace, name))
    except ApiError as refused:
        if refused.status == _NOT_FOUND:
            return None
        if refused.status == _FORBIDDEN and is_there:
            reason = "you are not allowed to get Homes, so a remembered home could not be checked"
            raise ByHandError(f"{target} has no home; {reason}: {refused.message or refused}") from refused
        raise
    except msgspec.DecodeError as error:
        raise ByHandError(f"Home {target.namespace}/{name} cannot be read: {error}") from None
    keeper = RecordedKeeper(target.api_version, target.kind, target.name, home.keeper.uid, target.slot)
    return home if home.keeper == keeper else None


async def _lookup(client: KubeClient, target: AnnotationTarget) -> tuple[Resource, _Object]:
    """Return the object's resource, and the object.

    Raises ``MissingObject`` if the object or its kind does not exist, ``ByHandError``, and ``KubeError``.
    """
    resource = await client.resolve(target.api_version, target.kind)
    if resource is None:
        raise MissingObject(f"the cluster does not serve {target.api_version} {target.kind}")
    return resource, await _read(client, resource, target)


async def _write(
    client: KubeClient, resource: Resource, target: AnnotationTarget, obj: _Object, value: str | None
) -> str:
    """Set the annotation, or remove it with ``None``; return its former value.

    Raises ``ByHandError`` and ``KubeError``.
    """
    before = obj.value(target)
    for _ in range(_ATTEMPTS):
        metadata = {"resourceVersion": obj.metadata.resource_version, "annotations": {target.annotation: value}}
        try:
            await client.patch(resource, target.namespace, target.name, {"metadata": metadata}, metadata_only=True)
        except ApiError as refused:
            if refused.status != _CONFLICT:
                raise
        else:
            return before
        known, obj = obj, await _read(client, resource, target)
        if obj.metadata.uid != known.metadata.uid:
            raise ByHandError(f"{target} was deleted and recreated meanwhile; nothing was changed")
        if (now := obj.value(target)) != before:
            raise ByHandError(f"{target}: {target.annotation} became {shown(now)} meanwhile; nothing was changed")
    raise ByHandError(f"{target}: it keeps changing; nothing was changed, try again")


async def _read(client: KubeClient, resource: Resource, target: AnnotationTarget) -> _Object:
    try:
        raw = await client.get(resource, target.namespace, target.name, metadata_only=True)
        return _OBJECT.decode(raw)
    except ApiError as refused:
        if refused.status == _NOT_FOUND:
            raise MissingObject(f"there is no {target}") from None
        raise
    except msgspec.DecodeError as error:
        raise ByHandError(f"{target} cannot be read: {error}") from None


async def _require_node(client: KubeClient, name: str) -> None:
    """Raise ``ByHandError`` if the node does not exist, or if the user is not allowed to read it.

    Raises ``KubeError`` if the check fails for another reason.
    """
    anyway = "--force skips this check"
    if not is_subdomain(name):
        raise ByHandError(f"{shown(name)} cannot be the name of a node: {anyway}")
    try:
        await client.get(NODES, "", name, metadata_only=True)
    except ApiError as refused:
        if refused.status == _NOT_FOUND:
            raise ByHandError(f"there is no node {name}: {anyway}") from None
        if refused.status == _FORBIDDEN:
            raise ByHandError(
                f"you are not allowed to get nodes, so node {name} could not be checked: {anyway}"
            ) from None
        raise
