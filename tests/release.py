"""Build every file of a release into dist/, without a registry: see docs/release.md.

    make release
    make release BASE=localhost/homeport-base:trixie    # a base image made of Debian's packages, as root, no registry

Files: sdist, wheel, chart, image (an OCI archive), plugin for krew with its manifest, bill of materials (CycloneDX) and
SHA256SUMS.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from tests import krew
from tests.cluster import image, images
from tests.cluster.image import Engine, ImageError, default_image, version
from tests.controlplane import tools
from tests.controlplane.binaries import BuildError

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
CHART: Final = ROOT / "helm" / "homeport"
LOCK: Final = "requirements-otlp.lock"
"""What is installed in the image."""

SUMS: Final = "SHA256SUMS"
_SAVE: Final = {
    "buildah": ("buildah", "push", "--quiet", "{image}", "oci-archive:{file}:{image}"),
    "podman": ("podman", "save", "--quiet", "--format=oci-archive", "--output={file}", "{image}"),
    "docker": ("docker", "save", "--output={file}", "{image}"),
}


class ReleaseError(Exception):
    """A release cannot be built; the message says what is missing, or which command failed."""


def files() -> dict[str, str]:
    """Return the file names of a release, by what they are."""
    number = version()
    return {
        "sdist": f"homeport-{number}.tar.gz",
        "wheel": f"homeport-{number}-py3-none-any.whl",
        "chart": f"homeport-{number}.tgz",
        "image": f"homeport-image-{number}.tar",
        "krew plugin": krew.archive_name(),
        "krew manifest": krew.MANIFEST.name,
        "bill of materials": f"homeport-{number}.cdx.json",
    }


def versions() -> dict[str, str]:
    """Return the version that each part of a release states."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "pyproject.toml": project["version"],
        "chart": chart["version"],
        "appVersion of the chart": str(chart["appVersion"]),
        "image": default_image().rpartition(":")[2],
    }


def missing(base: str) -> list[str]:
    """Return a sentence for each program that is needed and not installed."""
    found = []
    if not any(map(shutil.which, image.ENGINES)):
        found.append(f"one of {', '.join(image.ENGINES)}, to build the image (Debian: apt-get install buildah)")
    if base == images.BASE and not all(map(shutil.which, ("buildah", "mmdebstrap"))):
        found.append(f"buildah and mmdebstrap, to make {base} (Debian: apt-get install buildah mmdebstrap)")
    needed = {"git": "to know the commit", "sha256sum": "to compute checksums (Debian: apt-get install coreutils)"}
    return [*found, *(f"{program}, {purpose}" for program, purpose in needed.items() if not shutil.which(program))]


def build(base: str, url: str) -> None:
    """Build all files into ``dist/``. ``url``: where the plugin for krew will be.

    Raises ``ReleaseError``, ``BuildError`` and ``ImageError``.
    """
    if lacking := missing(base):
        raise ReleaseError("\n".join(["not installed:", *(f"- {sentence}" for sentence in lacking)]))
    if len(set(versions().values())) > 1:
        raise ReleaseError(f"versions differ: {versions()}")
    if image.revision().endswith("-dirty"):
        _say("warning: the checkout has changes that are not committed, so the files belong to no commit")
    DIST.mkdir(exist_ok=True)
    for name in (*files().values(), SUMS):
        (DIST / name).unlink(missing_ok=True)
    _build_python()
    _run(str(tools.helm("helm-3")), "package", str(CHART), f"--destination={DIST}")
    _build_image(base)
    krew.build(DIST, url)
    _run(
        *(sys.executable, "-m", "cyclonedx_py", "requirements", LOCK, "--pyproject=pyproject.toml"),
        *("--mc-type=application", "--output-reproducible", f"--output-file={DIST / files()['bill of materials']}"),
    )
    sums = _run("sha256sum", *files().values(), folder=DIST)
    (DIST / SUMS).write_text(sums, encoding="utf-8")


def _build_python() -> None:
    """Build the sdist, and the wheel from what is in the sdist; both have the time of the commit."""
    os.environ["SOURCE_DATE_EPOCH"] = _run("git", "log", "-1", "--format=%ct").strip()
    _run(sys.executable, "-m", "build", "--no-isolation", f"--outdir={DIST}", str(ROOT))


def _build_image(base: str) -> None:
    engine = Engine.found()
    if base == images.BASE and not engine.has(base):
        images.make_base()
    try:
        image.build(engine, default_image(), base)
    except ImageError as error:
        hint = f"without a registry, run as root: make release BASE={images.BASE}"
        raise ReleaseError(f"{error}; {hint}" if base != images.BASE else f"{error}") from None
    file = DIST / files()["image"]
    _run(*(part.format(image=default_image(), file=file) for part in _SAVE[engine.name]))


def _run(*command: str, folder: Path = ROOT) -> str:
    _say(f"==> {' '.join(command)}")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1, with the cause on standard error, if a file could not be built."""
    parser = argparse.ArgumentParser("python -m tests.release", description="Build every file of a release into dist/.")
    parser.add_argument("--base", default=image.BASE, help="the image that ours is built on (default: %(default)s)")
    parser.add_argument("--url", default=krew.URL, help="where the plugin for krew will be (default: %(default)s)")
    given = parser.parse_args(arguments)
    try:
        build(given.base, given.url)
    except (ReleaseError, BuildError, ImageError) as error:
        _say(f"error: {error}")
        return 1
    print((DIST / SUMS).read_text(encoding="utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
