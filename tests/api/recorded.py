"""What a stock kube-scheduler 1.36 really sent: the talks kept under tests/conformance/wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from app.verbs.outcome import Verb

FOLDER: Final = Path(__file__).parents[1] / "conformance" / "wire"

_USER_KEYS: Final = frozenset(
    {
        "labels",
        "annotations",
        "nodeSelector",
        "matchLabels",
        "requests",
        "overhead",
        "allocatedResources",
        "allocatable",
    }
)
_NODE_MAPS: Final = frozenset({"NodeNameToVictims", "NodeNameToMetaVictims"})


class Call(Struct, frozen=True):
    """One recorded call. ``name`` is folder and number: ``1-filter-prioritize-bind-names/01-filter``."""

    name: str
    verb: Verb
    request: bytes
    response: bytes

    @property
    def asked(self) -> Any:
        return json.loads(self.request)

    @property
    def answered(self) -> Any:
        return json.loads(self.response)


def _read(path: Path) -> Call:
    number = path.name.removesuffix(".request.json")
    response = path.with_name(f"{number}.response.json")
    verb = cast("Verb", number.partition("-")[2])
    return Call(f"{path.parent.name}/{number}", verb, path.read_bytes(), response.read_bytes())


CALLS: Final = tuple(_read(path) for path in sorted(FOLDER.glob("*/*.request.json")))


def recased(found: Any, case: Callable[[str], str]) -> Any:
    """``found`` with every key of the protocol in another case; keys that users choose stay as they are."""
    if isinstance(found, list):
        return [recased(it, case) for it in found]
    if not isinstance(found, dict):
        return found
    return {case(key): _recased_value(key, value, case) for key, value in found.items()}


def _recased_value(key: str, value: Any, case: Callable[[str], str]) -> Any:
    if key in _USER_KEYS:
        return value
    if key in _NODE_MAPS and isinstance(value, dict):
        return {node: recased(victims, case) for node, victims in value.items()}
    return recased(value, case)


def camel(key: str) -> str:
    return key[:1].lower() + key[1:]
