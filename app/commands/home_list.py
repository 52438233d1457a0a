"""``homeport homes list``: formats homes for people.

The kubectl plugin for krew contains this module. So the module imports only the standard library, and modules that also
import nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from app.commands import table
from app.commands.output import printable, structured

if TYPE_CHECKING:
    from app.commands.service import Pages

PATH: Final = "/api/v1/homes"

Output = Literal["table", "wide", "json", "yaml", "name"]
Json = dict[str, Any]

_MOST: Final = "500"
"""Maximum number of homes that one request returns: value of the query parameter ``limit``."""

_COLUMNS: Final = ("namespace", "owner", "node", "state", "machine", "policy")
_MORE: Final = ("because", "since", "by", "pod", "on", "contradiction")
"""Columns of the table, and the additional columns of ``-o wide``."""


@dataclass(frozen=True)
class HomeSelection:
    """Criteria that each listed home must match. An empty text, and ``False``, match every home."""

    namespace: str = ""
    node: str = ""
    selector: str = ""
    orphaned: bool = False
    away: bool = False
    contradictory: bool = False

    @property
    def narrows(self) -> bool:
        """True if the selection has a criterion besides the namespace."""
        return bool(self.query.keys() - {"namespace"})

    @property
    def query(self) -> dict[str, str]:
        texts = {"namespace": self.namespace, "node": self.node, "labelSelector": self.selector}
        flags = {name: "true" for name in ("orphaned", "away", "contradictory") if getattr(self, name)}
        return {name: value for name, value in texts.items() if value} | flags


def listing(server: Pages, selection: HomeSelection, output: Output, *, headers: bool = True) -> str:
    """Return the text to print about the selected homes. A table without rows is empty. Raises ``CommandError``."""
    items = list(homes(server, selection.query))
    text = structured({"items": items}, output)
    if text is not None:
        return text
    if output == "name":
        return printable("\n".join(name_of(it["owner"]) for it in items))
    return "\n".join(_rows(items, selection, wide=output == "wide", headers=headers)) if items else ""


def homes(server: Pages, query: Mapping[str, str]) -> Iterator[Json]:
    """Yield all homes that match the query, with as many requests as needed. Raises ``CommandError``."""
    token = ""
    while True:
        page = server.get(PATH, {**query, "limit": _MOST} | ({"continue": token} if token else {}))
        yield from page["items"]
        token = page["continue"]
        if not token:
            return


def name_of(owner: Json) -> str:
    """Return an owner in kubectl's format, with the ordinal if it has one: ``virtualmachine.kubevirt.io/db01``."""
    group, slash, _ = owner["apiVersion"].rpartition("/")
    return f"{owner['kind'].lower()}{f'.{group}' if slash else ''}/{named(owner)}"


def named(owner: Json) -> str:
    """Return the owner's name; if it has an ordinal, followed by a slash and the ordinal."""
    return f"{owner['name']}/{owner['slot']}" if owner["slot"] else str(owner["name"])


def _rows(items: Sequence[Json], selection: HomeSelection, *, wide: bool, headers: bool) -> list[str]:
    columns = list(_COLUMNS)
    if selection.namespace:
        columns.remove("namespace")
    if wide:
        columns += _MORE
    elif selection.contradictory:
        columns.append("contradiction")
    return table.lines(columns, [[cells[it] for it in columns] for cells in map(_cells, items)], headers=headers)


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
