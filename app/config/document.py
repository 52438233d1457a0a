"""Reader of the configuration file. It records the line of each key and list item, for messages about mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.config.mistakes import Mistake, Place, written
from app.config.yaml_loader import MergingConstructor

MOST_PLACES: Final = 2_000_000
"""Maximum number of keys and list items of one document, aliases resolved. They take some 500 MB."""

_MERGE: Final = "tag:yaml.org,2002:merge"


class UnreadableFile(ValueError):
    """Raised if the file cannot be read or is not YAML. The message has its path and, if known, the line."""


class Document(Struct, frozen=True):
    """Parsed configuration file.

    ``lines`` maps the path of each key and list item to its line, counted from 1. ``mistakes`` are the duplicate keys.
    """

    path: str
    value: Any
    lines: Mapping[Place, int]
    mistakes: tuple[Mistake, ...]

    def where(self, place: Place) -> str:
        """Return the file and line of a setting, or of its innermost parent in the file; without one, only the file."""
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.path}, line {self.lines[place]}" if place else self.path


def read_document(path: Path) -> Document:
    """Read a file with one YAML document. Raises ``UnreadableFile`` if that fails."""
    reader = YamlReader()
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        value = reader.read(root, ()) if root is not None else None
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path}: cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f", line {mark.line + 1}" if mark is not None else ""
        raise UnreadableFile(f"{path}{at}: is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    mistakes = tuple(Mistake((), f"{path}, line {line}: {text}") for line, text in reader.repeated)
    return Document(str(path), value, reader.lines, mistakes)


class YamlReader:
    """Converts PyYAML's composed nodes to values, like its safe loader, and records lines and duplicate keys.

    Unlike the safe loader, it keeps all keys as strings. ``above``: number of lines of the file before the text that
    was composed. Raises ``ValueError`` after ``MOST_PLACES`` keys and list items, because aliases can multiply them.
    """

    def __init__(self, above: int = 0) -> None:
        self._above = above
        self.lines: dict[Place, int] = {}
        self.repeated: list[tuple[int, str]] = []
        self._values = MergingConstructor()
        self._open: set[int] = set()
        self._checked: set[int] = set()

    def read(self, node: Node, place: Place) -> Any:
        """Convert a YAML node to a value. ``place``: path of the node.

        Raises ``yaml.MarkedYAMLError``. Raises ``ValueError`` for an invalid date, or for more than ``MOST_PLACES``
        keys and list items.
        """
        if id(node) in self._open:
            raise yaml.constructor.ConstructorError(None, None, "an alias refers to its own parent", node.start_mark)
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode) and node.tag == yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG:
                return self._mapping(node, place)
            if isinstance(node, SequenceNode) and node.tag == yaml.resolver.BaseResolver.DEFAULT_SEQUENCE_TAG:
                return [self._item(it, (*place, number)) for number, it in enumerate(node.value)]
            return self._values.construct_object(node, deep=True)
        finally:
            self._open.discard(id(node))

    def _item(self, node: Node, place: Place) -> Any:
        self._note(place, node)
        return self.read(node, place)

    def _note(self, place: Place, node: Node) -> None:
        if len(self.lines) >= MOST_PLACES:
            raise ValueError(f"more than {MOST_PLACES:,} keys and list items")
        self.lines[place] = self._above + node.start_mark.line + 1

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        # Check each node only once. An alias can refer to it again, after flattening has added merged keys to it.
        if id(node) not in self._checked:
            self._checked.add(id(node))
            self._note_repeated(node, place)
            self._values.flatten_mapping(node)
        mapping = {}
        for key, value in node.value:
            name = self._key(key)
            self._note((*place, name), key)
            mapping[name] = self.read(value, (*place, name))
        return mapping

    def _note_repeated(self, node: MappingNode, place: Place) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag == _MERGE:
                continue
            name, line = self._key(key), self._above + key.start_mark.line + 1
            if name in seen:
                text = f"{written((*place, name))} is set twice, also in line {seen[name]}"
                self.repeated.append((line, text))
            seen.setdefault(name, line)

    @staticmethod
    def _key(node: Node) -> str:
        """Return a key as the string in the file, for example ``on`` and ``1``, because JSON keys are strings too."""
        if not isinstance(node, ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a string", node.start_mark)
        return str(node.value)
