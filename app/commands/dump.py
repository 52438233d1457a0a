"""``homeport dump``: writes a live cluster to a file for ``--saved`` and ``serve --cluster``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import IO, Any, Final

from app.commands.service import CommandError
from app.config.profile import ANY, Profile
from app.config.settings import Settings
from app.feeds.dump import DumpError, dump
from app.framework.spec import PluginSpec
from app.kube.kinds import NODES, PRIORITY_CLASSES
from app.runtime.registry import Registry
from app.runtime.resolving import resolve

_WHOLE: Final = Profile(scheduler_name=ANY, preset="complete")
"""Profile with the largest preset. Its kinds are dumped, so that the file can be used with every preset."""


def run(settings: Settings, specs: Iterable[PluginSpec[Any]], defaults: Mapping[str, int], path: Path) -> str:
    """Write the live cluster to the file at ``path``, and return the text to print.

    The file has mode 0600. An existing file is replaced only after all objects are written. Raises ``CommandError`` if
    the cluster cannot be read or has no nodes, or if ``path`` exists and is not a file. Raises ``ProfileErrors`` for
    invalid profiles, ``CredentialsError``, and ``OSError`` if the file cannot be written.
    """
    if path.exists() and not path.is_file():
        raise CommandError(f"{path} is not a file: it cannot be replaced")
    registry = Registry(specs, defaults)
    profiles = [*resolve(settings.profiles, registry), *resolve((_WHOLE,), registry)]
    kinds = dict.fromkeys(kind for profile in profiles for kind in sorted(profile.kinds(), key=repr))
    kinds[PRIORITY_CLASSES] = None  # simulate reads them
    annotations = {key for profile in profiles for key in profile.node_annotations()}
    with _replacing(path.resolve()) as file:  # resolved, so that the target of a symbolic link is replaced
        try:
            dumped = asyncio.run(dump(settings.kubeconfig, kinds, annotations, file))
        except DumpError as error:
            raise CommandError(str(error)) from error
        if not dumped.objects.get(NODES):
            raise CommandError("the cluster has no nodes: there is nothing to schedule to")
    counts = ", ".join(f"{count} {kind.kind}" for kind, count in dumped.objects.items() if count)
    lines = [f"{path}: {counts}"]
    if dumped.not_served:
        lines.append(f"not served by this cluster: {', '.join(map(repr, dumped.not_served))}")
    return "\n".join(lines)


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` at the end of the context.

    After an exception, the temporary file is removed, and ``path`` is unchanged.
    """
    number, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")  # creates the file with mode 0600
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
