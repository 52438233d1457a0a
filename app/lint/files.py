"""Finds and reads manifests in files, folders and standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from app.lint.manifests import MOST_BYTES, BrokenManifest, ReadManifests, read_manifests

STDIN: Final = "-"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_CHART: Final = "Chart.yaml"
_TEMPLATES: Final = "templates"


def read_paths(paths: Sequence[str]) -> tuple[ReadManifests, list[str]]:
    """Read all manifests below ``paths``. Return them, and a note for each Helm chart whose templates are left out.

    ``-`` is standard input. In a folder, regular files that end with .yaml, .yml or .json are read. Hidden files and
    folders, and the templates of Helm charts, are left out. A path without any Kubernetes object is reported as broken.
    """
    read, notes = ReadManifests([], []), list[str]()
    for name in paths:
        path = Path(name)
        is_folder = name != STDIN and path.is_dir()
        before = len(read.objects) + len(read.broken)
        for file in _files_in(path, notes, read.broken) if is_folder else (path,):
            part = _read(name if name == STDIN else str(file))
            read.objects += part.objects
            read.broken += part.broken
        if len(read.objects) + len(read.broken) == before:
            what = "no manifests in this folder" if is_folder else "no Kubernetes objects in it"
            read.broken.append(BrokenManifest(name, 0, what))
    return read, notes


def _files_in(folder: Path, notes: list[str], broken: list[BrokenManifest]) -> Iterator[Path]:
    """Yield the manifests below a folder. Add remarks on Helm charts to ``notes``, and unreadable folders to
    ``broken``.
    """

    def add(error: OSError) -> None:
        broken.append(BrokenManifest(str(error.filename), 0, f"cannot be read: {error.strerror}"))

    for at, folders, names in os.walk(folder, onerror=add):
        if _CHART in names and _TEMPLATES in folders:
            folders.remove(_TEMPLATES)
            notes.append(f"{at}: a Helm chart, whose templates are not read: lint the output of helm template")
        folders[:] = sorted(it for it in folders if not it.startswith("."))
        chosen = (Path(at, it) for it in sorted(names) if it.endswith(_SUFFIXES) and not it.startswith("."))
        yield from (it for it in chosen if it.is_file() or not it.exists())  # no FIFO, which would block


def _read(name: str) -> ReadManifests:
    try:
        if name == STDIN:
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return ReadManifests([], [BrokenManifest(name, 0, f"cannot be read: {error}")])
    if len(data) > MOST_BYTES:
        message = f"larger than {MOST_BYTES >> 20} MiB: read a saved cluster with --saved"
        return ReadManifests([], [BrokenManifest(name, 0, message)])
    return read_manifests(text, name)
