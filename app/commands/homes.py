"""``homeport homes``: lets a user move, release and keep homes (``home_list`` lists them).

A home is the node on which Homeport places a pod again when the pod is recreated. The node's name is stored in an
annotation of the pod's owner. The commands read homes, and the kinds of owners that can have homes, from Homeport's
pages. They write changes to the API server with the permissions of the user's kubeconfig, like ``kubectl annotate``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from msgspec import Struct

from app.commands.home_list import PATH, Json, homes
from app.commands.service import CommandError, Pages, UsageError
from app.homes import by_hand
from app.homes.by_hand import AnnotationTarget, ByHandError, MissingObject
from app.homes.protocol import State
from app.kube.credentials import Login
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.names import is_segment, is_subdomain, shown
from app.verbs.similar import similar

HOME: Final = f"{ANNOTATION_DOMAIN}home"
T = TypeVar("T")

_SHORT: Final = {
    "vm": "virtualmachine",
    "vms": "virtualmachine",
    "sts": "statefulset",
    "pvc": "persistentvolumeclaim",
    "lws": "leaderworkerset",
}
"""Kinds of owners by kubectl's short names."""

_SAVED: Final = "saved"
"""State of a feed that serves a saved cluster."""

_ORDINAL: Final = re.compile("[0-9]+(-[0-9]+)?")
"""Ordinal of a pod. In a LeaderWorkerSet it is ``GROUP-WORKER``: the group's number and the worker's index in it."""

_PARTS: Final = 3


class OwnerArgument(Struct, frozen=True):
    """Owner of a home, parsed from the command line.

    ``slot``: ordinal of the pod if each pod of the owner has its own home; else empty.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    slot: str

    def __str__(self) -> str:
        """Return the owner as text, for example ``VirtualMachine machines/db01`` or ``StatefulSet default/db/3``."""
        return f"{self.kind} {self.namespace}/{self.name}{f'/{self.slot}' if self.slot else ''}"

    @property
    def target(self) -> AnnotationTarget:
        annotation = f"{HOME}.{self.slot}" if self.slot else HOME
        return AnnotationTarget(self.api_version, self.kind, self.namespace, self.name, annotation, self.slot)


def keepers(server: Pages) -> list[Json]:
    """Return the kinds of owners that can have homes. Raises ``CommandError``."""
    kinds: list[Json] = server.get(PATH, {"limit": "1"})["keepers"]
    return kinds


def owner_of(server: Pages, namespace: str, text: str) -> OwnerArgument:
    """Parse ``KIND/NAME`` or ``KIND/NAME/ORDINAL``. Raises ``UsageError`` for another form.

    Raises ``CommandError`` if the request for the kinds fails, or if no owner of this kind can have homes. It is also
    raised if the kind is ambiguous, or if an ordinal is missing or superfluous.
    """
    kind, name, slot = _parsed(text)
    kinds = keepers(server)
    matches = {(it["apiVersion"], it["kind"]): bool(it["perSlot"]) for it in kinds if _is_called(it, kind)}
    if not matches:
        known = ", ".join(dict.fromkeys(it["kind"] for it in kinds)) or "none"
        raise CommandError(f"no {kind} keeps homes here; kinds that do: {known}")
    if len(matches) > 1:
        choices = " or ".join(f"{word}.{version.rpartition('/')[0]}/{name}" for version, word in matches)
        raise CommandError(f"{kind} matches more than one kind: use {choices}")
    (((version, word), per_slot),) = matches.items()
    if per_slot and not slot:
        raise CommandError(f"each pod of a {word} has a home of its own: use {word}/{name}/ORDINAL")
    if slot and not per_slot:
        raise CommandError(f"a {word} has one home: use {word}/{name}")
    return OwnerArgument(version, word, namespace, name, slot)


def _parsed(text: str) -> tuple[str, str, str]:
    """Return kind, name and ordinal (empty if none) of an owner, as the user wrote them. Raises ``UsageError``."""
    parts = text.split("/")
    sound = 1 < len(parts) <= _PARTS and all(map(is_segment, parts))
    if not sound or (len(parts) == _PARTS and not _ORDINAL.fullmatch(parts[-1])):
        raise UsageError(f"{shown(text)} is not an owner: use KIND/NAME, or KIND/NAME/ORDINAL")
    return parts[0], parts[1], parts[2] if len(parts) == _PARTS else ""


def _is_called(keeper: Json, word: str) -> bool:
    """Return true if ``word`` names the kind, in upper or lower case.

    ``word`` can be the singular or plural, with or without the API group, or kubectl's short name.
    """
    group, slash, _ = keeper["apiVersion"].rpartition("/")
    kind = keeper["kind"].lower()
    word = word.lower()
    names = {kind, f"{kind}s"}
    if slash:
        names |= {f"{it}.{group}" for it in names}
    return word in names or _SHORT.get(word) == kind


def move(server: Pages, login: Login, owner: OwnerArgument, node: str, *, force: bool) -> str:
    """Make the node the home, and return the text to print. With ``force``, the node need not exist.

    Raises ``CommandError`` if that fails, ``UsageError`` for an empty ``node``, and ``CredentialsError``.
    """
    if not node:
        raise UsageError(f"{owner}: the name of the node is empty; release removes a home")
    _require_api_server(server, owner)
    before = _done(by_hand.change(login, owner.target, node, check_node=not force), server, owner)
    if before == node:
        return f"{owner}: {node} is the home already"
    return f"{owner}: the home is {_readable(node)} now{f', it was {_readable(before)}' if before else ''}"


def release(server: Pages, login: Login, owner: OwnerArgument) -> str:
    """Remove the home, and return the text to print. The next bind of the pod then creates a new home.

    If the owner was deleted, the home that Homeport still remembers for it is removed. Raises ``CommandError`` if there
    is no home, or if the change fails. Raises ``CredentialsError``.
    """
    _require_api_server(server, owner)
    released = _done(by_hand.release(login, owner.target), server, owner)
    if not released.before:
        raise CommandError(f"{owner} has no home")
    if released.remembered:
        return f"{owner} is gone: its remembered home {_readable(released.before)} was removed"
    return f"{owner}: {_readable(released.before)} is no longer the home; the next bind creates a new one"


def keep(server: Pages, login: Login, owner: OwnerArgument) -> str:
    """Make the current node of the owner's pod the home, and return the text to print.

    Raises ``CommandError`` if the owner is gone or has no pod, if its pod has no node, or if the change fails. Raises
    ``CredentialsError``.
    """
    items = [*_known(server, owner), *_known(server, owner, state=State.NONE)]
    if not items:
        missing = f"{owner} has neither a home nor a pod, as far as Homeport knows"
        raise CommandError(missing + _similar(server, owner))
    if items[0]["state"] == State.OWNER_GONE:
        raise CommandError(f"{owner} is gone, and its home is remembered; release forgets it")
    if not items[0]["pod"]:
        raise CommandError(f"{owner} has no pod: there is no node to keep; move can name one")
    if not items[0]["podNode"]:
        raise CommandError(f"{owner}: its pod {items[0]['pod']} has no node yet")
    return move(server, login, owner, items[0]["podNode"], force=False)


def _require_api_server(server: Pages, owner: OwnerArgument) -> None:
    """Raise ``CommandError`` if Homeport serves a saved cluster, because there is no API server to write to."""
    feeds = server.get("/api/v1/status", {})["feeds"]
    if any(feed["state"] == _SAVED for feed in feeds.values()):
        raise CommandError(f"{owner}: Homeport serves a saved cluster here, so there is no API server to write to")


def _known(server: Pages, owner: OwnerArgument, **more: str) -> list[Json]:
    """Return the owner's entries in the list of homes; empty without any. ``more``: further query parameters."""
    query = {"namespace": owner.namespace, "kind": owner.kind, "name": owner.name, **more}
    mine = (owner.api_version, owner.slot)
    return [it for it in homes(server, query) if (it["owner"]["apiVersion"], it["owner"]["slot"]) == mine]


def _done(change: Coroutine[Any, Any, T], server: Pages, owner: OwnerArgument) -> T:
    """Run a change, and return its result. Raises ``CommandError`` and ``CredentialsError``."""
    try:
        return asyncio.run(change)
    except MissingObject as failure:
        raise CommandError(f"{failure}{_similar(server, owner)}") from failure
    except ByHandError as failure:
        raise CommandError(str(failure)) from failure


def _similar(server: Pages, owner: OwnerArgument) -> str:
    """Return text that suggests similar names of owners of the kind in the namespace that have homes; can be empty."""
    listed = homes(server, {"namespace": owner.namespace, "kind": owner.kind})
    return similar(owner.name, sorted({it["owner"]["name"] for it in listed} - {owner.name}))


def _readable(home: str) -> str:
    return home if is_subdomain(home) else shown(home)
