"""Build the plugin for krew and its manifest into dist/: see docs/kubectl-packaging.md.

make krew
make krew URL=https://downloads.example.com/homeport/0.1.0    # where the archive will be
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Final

from tests.cluster.image import version

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
PLUGIN: Final = ROOT / "krew" / "kubectl_homeport.py"
MANIFEST: Final = ROOT / "krew" / "homeport.yaml"
PROGRAM: Final = "kubectl-homeport"
HOMEPAGE: Final = "https://example.com/homeport"
"""Placeholder, as are addresses in the examples of the docs: nothing is published."""

_MAIN: Final = """\
import sys

if sys.version_info < (3, 11):
    sys.stderr.write("homeport: Python 3.11 or newer is needed, and python3 is " + sys.version.split()[0] + "\\n")
    sys.exit(3)

from kubectl_homeport import main

sys.exit(main("{version}"))
"""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""Time of each file, so that two builds are equal: the earliest that the format has."""


URL: Final = f"{HOMEPAGE}/{version()}"


def archive_name() -> str:
    return f"homeport-krew-{version()}.tar.gz"


def modules() -> list[Path]:
    """Return the modules of ``app`` that the plugin imports, directly or not, with the packages they are in."""
    found: set[Path] = set()
    waiting = [PLUGIN]
    while waiting:
        for module in _imported(waiting.pop()):
            if module not in found:
                found |= {module, *(it / "__init__.py" for it in module.parents if ROOT in it.parents)}
                waiting.append(module)
    return sorted(found)


def _imported(module: Path) -> Iterator[Path]:
    """Yield the files of Homeport's modules that a module imports when it is imported itself."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case ast.ImportFrom(module=str(name), names=names) if name.partition(".")[0] in ("app", "plugins"):
                folder = ROOT / name.replace(".", "/")
                files = [folder.with_suffix(".py"), *(folder / f"{it.name}.py" for it in names)]
                yield from (it for it in files if it.is_file())


def program() -> bytes:
    """Return the executable: a zip archive that Python runs, after a line that names Python."""
    packed = io.BytesIO()
    packed.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        files = {it.relative_to(ROOT).as_posix(): it.read_text(encoding="utf-8") for it in modules()}
        files |= {PLUGIN.name: PLUGIN.read_text(encoding="utf-8"), "__main__.py": _MAIN.format(version=version())}
        for name, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def build(folder: Path, url: str) -> None:
    """Write the archive and its manifest into ``folder``. ``url``: address of the folder that will have the archive."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, content, mode in (("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644), (PROGRAM, program(), 0o755)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    folder.mkdir(exist_ok=True)
    (folder / archive_name()).write_bytes(packed.getvalue())
    values = {
        "version": version(),
        "homepage": HOMEPAGE,
        "uri": f"{url.rstrip('/')}/{archive_name()}",
        "sha256": hashlib.sha256(packed.getvalue()).hexdigest(),
    }
    template = "".join(MANIFEST.read_text(encoding="utf-8").splitlines(keepends=True)[1:])  # without its comment
    (folder / MANIFEST.name).write_text(Template(template).substitute(values), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.krew", description="Build the plugin for krew into dist/.")
    parser.add_argument("--url", default=URL, help="where the archive will be")
    build(DIST, parser.parse_args(arguments).url)
    print(DIST / archive_name(), DIST / MANIFEST.name, sep="\n", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
