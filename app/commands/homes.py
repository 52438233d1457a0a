"""``homeport homes``: who lives where, and moves, releases and keeps of homes by a person.

A running Homeport says who lives where, and which kinds keep homes. What is changed goes to the API server, with the
rights of the person's kubeconfig: the same that ``kubectl annotate`` would write.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import yaml
from msgspec import Struct

from app.commands import table
from app.commands.service import CommandError, Pages
from app.homes import by_hand
from app.homes.by_hand import ByHandError, Target
from app.homes.protocol import State
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.names import is_segment, is_subdomain, shown

HOME: Final = f"{ANNOTATION_DOMAIN}home"
PATH: Final = "/api/v1/homes"

Output = Literal["table", "wide", "json", "yaml", "name"]
Json = dict[str, Any]
T = TypeVar("T")

_MOST: Final = "500"
_SHORT: Final = {
    "vm": "virtualmachine",
    "vms": "virtualmachine",
    "sts": "statefulset",
    "pvc": "persistentvolumeclaim",
    "lws": "leaderworkerset",
}
"""kubectl's short names of kinds that keep homes."""

_SAVED: Final = "saved"
_ORDINAL: Final = re.compile("[0-9]+(-[0-9]+)?")
"""Of a LeaderWorkerSet: the group, and the place in it."""

_PARTS: Final = 3
_COLUMNS: Final = ("namespace", "owner", "node", "state", "machine", "policy")
_MORE: Final = ("because", "since", "by", "pod", "on", "contradiction")


class Owner(Struct, frozen=True):
    """An object that keeps a home, as it was asked for and found to be of a kind that does. ``slot``: an ordinal."""

    api_version: str
    kind: str
    namespace: str
    name: str
    slot: str

    def __str__(self) -> str:
        """As it is asked for, with the namespace: ``VirtualMachine machines/db01``, ``StatefulSet default/db/3``."""
        return f"{self.kind} {self.namespace}/{self.name}{f'/{self.slot}' if self.slot else ''}"

    @property
    def target(self) -> Target:
        annotation = f"{HOME}.{self.slot}" if self.slot else HOME
        return Target(self.api_version, self.kind, self.namespace, self.name, annotation, self.slot)


class Asked(Struct, frozen=True):
    """Which homes a person wants to see. ``namespace``: empty for all."""

    namespace: str = ""
    node: str = ""
    orphaned: bool = False
    away: bool = False
    contradictory: bool = False

    @property
    def narrows(self) -> bool:
        """Whether homes are left out, but for those of other namespaces."""
        return bool(self.query.keys() - {"namespace"})

    @property
    def query(self) -> dict[str, str]:
        texts = {"namespace": self.namespace, "node": self.node}
        flags = {name: "true" for name in ("orphaned", "away", "contradictory") if getattr(self, name)}
        return {name: value for name, value in texts.items() if value} | flags


def listing(server: Pages, asked: Asked, output: Output) -> str:
    """The text to print; empty where a table would have no row. Raises ``CommandError``."""
    found = list(homes(server, asked.query))
    if output == "json":
        return json.dumps({"items": found}, indent=2)
    if output == "yaml":
        return str(yaml.safe_dump({"items": found}, sort_keys=False)).rstrip("\n")
    if output == "name":
        return "\n".join(name_of(it["owner"]) for it in found)
    return "\n".join(_rows(found, asked, wide=output == "wide")) if found else ""


def homes(server: Pages, query: Mapping[str, str]) -> Iterator[Json]:
    """All that is asked for, page by page. Raises ``CommandError``."""
    token = ""
    while True:
        page = server.get(PATH, {**query, "limit": _MOST} | ({"continue": token} if token else {}))
        yield from page["items"]
        token = page["continue"]
        if not token:
            return


def keepers(server: Pages) -> list[Json]:
    """The kinds that keep homes. Raises ``CommandError``."""
    found: list[Json] = server.get(PATH, {"limit": "1"})["keepers"]
    return found


def name_of(owner: Json) -> str:
    """As kubectl names objects: ``virtualmachine.kubevirt.io/db01``, with the ordinal after it."""
    group, slash, _ = owner["apiVersion"].rpartition("/")
    return f"{owner['kind'].lower()}{f'.{group}' if slash else ''}/{named(owner)}"


def named(owner: Json) -> str:
    """Its name, with the ordinal after it."""
    return f"{owner['name']}/{owner['slot']}" if owner["slot"] else str(owner["name"])


def _rows(found: Sequence[Json], asked: Asked, *, wide: bool) -> list[str]:
    columns = list(_COLUMNS)
    if asked.namespace:
        columns.remove("namespace")
    if wide:
        columns += _MORE
    elif asked.contradictory:
        columns.append("contradiction")
    return table.lines(columns, [[cells[it] for it in columns] for cells in map(_cells, found)])


def _cells(home: Json) -> dict[str, str]:
    cells = {
        "namespace": home["owner"]["namespace"],
        "owner": f"{home['owner']['kind']}/{named(home['owner'])}",
        "node": home["node"],
        "state": _words(home["state"]),
        "because": home["mark"],
        "machine": _words(home["machine"]),
        "policy": home["policy"],
        "by": home["policySource"],
        "since": home["since"],
        "pod": home["pod"],
        "on": home["podNode"],
        "contradiction": home["contradiction"],
    }
    return {column: cell or "-" for column, cell in cells.items()}


def _words(word: str) -> str:
    return word.replace("_", " ")


def owner_of(server: Pages, namespace: str, asked: str) -> Owner:
    """What ``kind/name`` or ``kind/name/ordinal`` means. Raises ``CommandError``."""
    kind, name, slot = _taken_apart(asked)
    kinds = keepers(server)
    found = {(it["apiVersion"], it["kind"]): bool(it["perSlot"]) for it in kinds if _is_called(it, kind)}
    if not found:
        known = ", ".join(dict.fromkeys(it["kind"] for it in kinds)) or "none"
        raise CommandError(f"no {kind} keeps homes here; kinds that do: {known}")
    if len(found) > 1:
        choices = " or ".join(f"{word}.{version.rpartition('/')[0]}/{name}" for version, word in found)
        raise CommandError(f"{kind} may be more than one kind: say {choices}")
    (((version, word), per_slot),) = found.items()
    if per_slot and not slot:
        raise CommandError(f"each pod of a {word} has a home of its own: say {word}/{name}/ORDINAL")
    if slot and not per_slot:
        raise CommandError(f"a {word} has one home: say {word}/{name}")
    return Owner(version, word, namespace, name, slot)


def _taken_apart(asked: str) -> tuple[str, str, str]:
    parts = asked.split("/")
    sound = 1 < len(parts) <= _PARTS and all(map(is_segment, parts))
    if not sound or (len(parts) == _PARTS and not _ORDINAL.fullmatch(parts[-1])):
        raise CommandError(f"{shown(asked)} is no owner: say KIND/NAME, or KIND/NAME/ORDINAL")
    return parts[0], parts[1], parts[2] if len(parts) == _PARTS else ""


def _is_called(keeper: Json, word: str) -> bool:
    """By its kind or plural in any case, with or without its group, or by kubectl's short name."""
    group, slash, _ = keeper["apiVersion"].rpartition("/")
    kind = keeper["kind"].lower()
    word = word.lower()
    names = {kind, f"{kind}s"}
    if slash:
        names |= {f"{it}.{group}" for it in names}
    return word in names or _SHORT.get(word) == kind


def move(server: Pages, kubeconfig: str | None, owner: Owner, node: str, *, force: bool) -> str:
    """Write that node as the home. ``force``: even if there is no such node. Raises ``CommandError``."""
    if not node:
        raise CommandError(f"{owner}: a home has a name; release takes it away")
    _require_api_server(server, owner)
    before = _done(by_hand.change(kubeconfig, owner.target, node, check_node=not force))
    if before == node:
        return f"{owner}: {node} is the home already"
    return f"{owner}: the home is {_readable(node)} now{f', it was {_readable(before)}' if before else ''}"


def release(server: Pages, kubeconfig: str | None, owner: Owner) -> str:
    """Remove the home; the next first bind makes one. The home of an owner that is gone is forgotten.

    Raises ``CommandError``.
    """
    _require_api_server(server, owner)
    found = _done(by_hand.release(kubeconfig, owner.target))
    if not found.before:
        raise CommandError(f"{owner} has no home")
    if found.remembered:
        return f"{owner} is gone: that its home was {_readable(found.before)} is remembered no more"
    return f"{owner}: {_readable(found.before)} is not the home any more; the next first bind makes one"


def keep(server: Pages, kubeconfig: str | None, owner: Owner) -> str:
    """The home is the node on which its pod is now. Raises ``CommandError``."""
    found = [*_known(server, owner), *_known(server, owner, state=State.NONE)]
    if not found:
        raise CommandError(f"{owner} has neither a home nor a pod, as far as Homeport knows")
    if found[0]["state"] == State.OWNER_GONE:
        raise CommandError(f"{owner} is gone, and its home is remembered; release forgets it")
    if not found[0]["pod"]:
        raise CommandError(f"{owner} has no pod: there is no node to keep; move can name one")
    if not found[0]["podNode"]:
        raise CommandError(f"{owner}: its pod {found[0]['pod']} has no node yet")
    return move(server, kubeconfig, owner, found[0]["podNode"], force=False)


def _require_api_server(server: Pages, owner: Owner) -> None:
    """Raise ``CommandError`` if Homeport serves a saved cluster, whose homes are in no API server."""
    feeds = server.get("/api/v1/status", {})["feeds"]
    if any(feed["state"] == _SAVED for feed in feeds.values()):
        raise CommandError(f"{owner}: Homeport serves a saved cluster here, so there is no API server to write to")


def _known(server: Pages, owner: Owner, **more: str) -> list[Json]:
    """What Homeport knows of the home: one at most."""
    asked = {"namespace": owner.namespace, "kind": owner.kind, "name": owner.name, **more}
    mine = (owner.api_version, owner.slot)
    return [it for it in homes(server, asked) if (it["owner"]["apiVersion"], it["owner"]["slot"]) == mine]


def _done(change: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(change)
    except ByHandError as failure:
        raise CommandError(str(failure)) from failure


def _readable(home: str) -> str:
    return home if is_subdomain(home) else shown(home)
