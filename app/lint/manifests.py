"""Reader of manifests: Kubernetes objects with the lines of their fields, and comments that ignore rules.

A file is first split at its ``---`` lines, so that a document that is not YAML does not hide the other documents.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from msgspec import Struct

from app.config.document import YamlReader
from app.config.mistakes import Place, written
from app.config.yaml_loader import loader_for

MOST_BYTES: Final = 64 << 20
"""Maximum bytes of a manifest file. A larger one takes minutes and gigabytes, because each field's line is stored."""

_SEPARATOR: Final = re.compile(r"^---(?=[ \t\r\n]|$)", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^%.*$", re.MULTILINE)
_IGNORE: Final = re.compile(r"(?:^|\s)#+\s*homeport\.dev/ignore:[ \t]*([\w-]+(?:[ \t]*,[ \t]*[\w-]+)*)")
_NO_CONTENT: Final = re.compile(r"\s*(?:#.*)?")
_CONFIGURATIONS: Final = re.compile(r"^kind:\s*[\"']?(?:KubeScheduler|Homeport)Configuration\b", re.MULTILINE)

_PROSE: Final = re.compile(r".*\.(?!(?:ya?ml|json|conf)$)[^.]*", re.DOTALL)
"""Keys of a ConfigMap whose text need not be YAML: those with a suffix other than yaml, yml, json and conf."""


class BrokenManifest(Struct, frozen=True):
    """Message about a part of the input, for example that it cannot be judged. ``line``: 0 if the line is unknown."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.message}"


class ManifestObject(Struct, frozen=True):
    """Kubernetes object in a file, or in a ConfigMap of a cluster.

    ``file``: empty for a live cluster. ``place``: path of the object in its document, not empty for an item of a List.
    ``lines``: line of each key and list item of the document; empty for a cluster. ``line``: first line of the object;
    0 for a cluster. ``ignored``: rule ids in comments, and in the annotation of a ConfigMap of a cluster. ``within``:
    the ConfigMap that contains the object as text, if any.
    """

    file: str
    value: Mapping[str, Any]
    place: Place
    lines: Mapping[Place, int]
    line: int
    ignored: frozenset[str] = frozenset()
    within: ManifestObject | None = None

    def line_of(self, place: Place) -> int:
        """Return the line of a field, or of its innermost parent that is in ``lines``; else ``line``."""
        full = (*self.place, *place)
        while len(full) > len(self.place):
            if full in self.lines:
                return self.lines[full]
            full = full[:-1]
        return self.line


class ReadManifests(Struct):
    """Objects of files or ConfigMaps, and messages about parts that cannot be read and about repeated keys."""

    objects: list[ManifestObject]
    broken: list[BrokenManifest]


def read_manifests(text: str, file: str) -> ReadManifests:
    """Read all documents of a file, and the configurations in its ConfigMaps.

    Documents that lack ``apiVersion`` or ``kind`` are left out.
    """
    read = ReadManifests([], [])
    for above, part in _parts(text.removeprefix("\ufeff")):
        _read_part(part, file, above, read)
    for holder in [it for it in read.objects if it.value["kind"] == "ConfigMap"]:
        held = configurations_in(holder)
        read.broken += held.broken
        read.objects += held.objects
    return read


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of lines above each document of a stream, and the document."""
    start = above = 0
    for separator in _SEPARATOR.finditer(text):
        yield above, text[start : separator.start()]
        above += text.count("\n", start, separator.start())
        start = separator.end()
    yield above, text[start:]


def _read_part(part: str, file: str, above: int, read: ReadManifests) -> None:
    """Add the objects of a document, or why it cannot be read, to ``read``. ``above``: number of lines above it."""
    text = _DIRECTIVE.sub("", part) if part.startswith("%") else part
    if not text.strip():
        return
    try:
        for root in yaml.compose_all(text, Loader=loader_for(text)):
            reader = YamlReader(above)
            value = reader.read(root, ())
            read.broken += (BrokenManifest(file, line, message) for line, message in reader.repeated)
            first = above + root.start_mark.line + 1
            read.objects += _objects(value, file, reader.lines, first, above, text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = text.rstrip().count("\n") + 1  # an error at the end is about the last line
        line = above + (min(mark.line + 1, last) if mark is not None else 1)
        read.broken.append(BrokenManifest(file, line, f"is not YAML: {error.problem or error.context}{_hint(text)}"))
    except (yaml.YAMLError, ValueError) as error:
        message = " ".join(str(error).split())
        read.broken.append(BrokenManifest(file, above + 1, f"is not YAML: {message}{_hint(text)}"))
    except RecursionError:
        read.broken.append(BrokenManifest(file, above + 1, "is nested too deeply"))


def _hint(text: str) -> str:
    is_template = "{{" in text and "}}" in text
    return "; it looks like a Helm template: lint the output of helm template" if is_template else ""


def _objects(
    value: Any, file: str, lines: Mapping[Place, int], first: int, above: int, text: str
) -> Iterator[ManifestObject]:
    """Yield the object in a document, or the items of a List."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return
    items = value.get("items")
    if not (value["kind"].endswith("List") and isinstance(items, list)):
        if isinstance(value.get("apiVersion"), str):
            yield ManifestObject(file, value, (), lines, first, _ignored(text))
        return
    defaults = {"apiVersion": value.get("apiVersion"), "kind": value["kind"].removesuffix("List")}
    starts = [lines[("items", number)] for number in range(len(items))]
    by_item = _ignored_by_item(text, above, starts)
    for number, item in enumerate(items):
        if isinstance(item, dict):
            place = ("items", number)
            completed = {**defaults, **item}
            if isinstance(completed["kind"], str) and isinstance(completed["apiVersion"], str):
                yield ManifestObject(file, completed, place, lines, starts[number], by_item.get(number, frozenset()))


def _ignored(text: str) -> frozenset[str]:
    """Return the rule ids in all comments ``homeport.dev/ignore`` of a text."""
    return frozenset(it.strip() for ids in _IGNORE.findall(text) for it in ids.split(","))


def _ignored_by_item(text: str, above: int, starts: list[int]) -> dict[int, frozenset[str]]:
    """Return, by index of an item of a List, the rule ids in its comments.

    A line that is only a comment belongs to the item of the next line with content. ``starts``: first line of each
    item.
    """
    by_item: dict[int, frozenset[str]] = {}
    if "homeport.dev/ignore:" not in text:
        return by_item
    pending: frozenset[str] = frozenset()
    for number, line in enumerate(text.splitlines(), above + 1):
        pending |= _ignored(line)
        if pending and not _NO_CONTENT.fullmatch(line):
            item = bisect_right(starts, number) - 1
            by_item[item] = by_item.get(item, frozenset()) | pending
            pending = frozenset()
    return by_item


def configurations_in(holder: ManifestObject) -> ReadManifests:
    """Return the objects in those texts of a ConfigMap that contain a configuration of kube-scheduler or Homeport."""
    read = ReadManifests([], [])
    data = holder.value.get("data")
    for key, text in data.items() if isinstance(data, dict) else ():
        if isinstance(text, str) and _CONFIGURATIONS.search(text):
            inner = ReadManifests([], [])
            above = holder.line_of(("data", key))
            for more, part in _parts(text):
                _read_part(part, holder.file, above + more, inner)
            read.broken += (
                BrokenManifest(it.file, it.line, f"{written(('data', key))}: {it.message}")
                for it in inner.broken
                if not _PROSE.fullmatch(str(key))
            )
            read.objects += (
                ManifestObject(it.file, it.value, it.place, it.lines, it.line, it.ignored | holder.ignored, holder)
                for it in inner.objects
            )
    return read
