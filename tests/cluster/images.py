"""The images of the cluster as archives in the cache: Homeport's from its Dockerfile, kube-scheduler and pause from Go.

No registry is asked. Homeport's base is made of Debian's packages, once; the layers above it are kept by buildah. An
archive is named after what is in it, so that what did not change is not written again.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.cluster import image
from tests.cluster.image import ImageError
from tests.controlplane import binaries

BASE: Final = "localhost/homeport-base:trixie"
HOMEPORT: Final = "localhost/homeport:cluster"
TESTS: Final = "localhost/homeport-tests:cluster"
PAUSE: Final = "localhost/pause:1"
SCHEDULER_REPOSITORY: Final = "registry.k8s.io/kube-scheduler"
"""As it is named where everybody pulls it from, so that a chart's default is found."""

SCHEDULERS: Final = ("1.36.3", "1.35.4")
_PAUSE_SOURCES: Final = Path(__file__).parent / "pause"
_TESTS: Final = Path(__file__).parent / "tests"
_RUN_TESTS: Final = ("/tests/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit")
_KEPT_SECONDS: Final = 3600.0
_STALE: Final = ("etc/hostname", "etc/resolv.conf")
"""What mmdebstrap takes from this machine."""


def prepare() -> list[Path]:
    """Build what is missing and return an archive of each image; one at a time, as all share the cache."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _prepare(cache())


def _prepare(archives: Path) -> list[Path]:
    if not image.Engine("buildah").has(BASE):
        make_base()
    image.build(image.Engine("buildah"), HOMEPORT, BASE)
    schedulers = [
        _of_one_program(f"{SCHEDULER_REPOSITORY}:v{release}", binaries.binary("kube-scheduler", release), archives)
        for release in SCHEDULERS
    ]
    found = [_archive(HOMEPORT, archives), *schedulers, _of_one_program(PAUSE, _pause(), archives, name="pause")]
    for archive in found:
        archive.touch()
    return found


def run_unit_tests() -> None:
    """Run them on top of the image, with its Python; `ImageError` when one fails."""
    with image.pip_secrets() as secrets:
        run(
            *("buildah", "bud", "--quiet", "--layers", "--pull=never", "--isolation=chroot", "--network=host"),
            *(f"--secret=id={name},src={path}" for name, path in secrets.items()),
            *(f"--build-arg=IMAGE={HOMEPORT}", f"--tag={TESTS}"),
            *(f"--ignorefile={_TESTS}.dockerignore", f"--file={_TESTS}.Dockerfile", image.ROOT),
        )
    container = run("buildah", "from", "--pull-never", TESTS)
    try:
        asked = ["buildah", "run", "--isolation=chroot", container, "--", *_RUN_TESTS]
        if subprocess.run(asked, stdout=sys.stderr, check=False).returncode:
            raise ImageError("the unit tests failed under the Python of the image")
    finally:
        run("buildah", "rm", container)


def cache() -> Path:
    """Where the archives are."""
    return binaries.cache_dir() / "images"


def make_base() -> None:
    """Make the base image of Debian's packages, as root."""
    print(f"making {BASE} of Debian's packages", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="homeport-base-") as folder:
        archive = Path(folder) / "base.tar"
        removed = " ".join(f'"$1/{name}"' for name in _STALE)
        run("mmdebstrap", "--variant=minbase", "--mode=root", f"--customize-hook=rm -f {removed}", "trixie", archive)
        container = run("buildah", "from", "scratch")
        run("buildah", "add", "--quiet", container, archive, "/")
        run("buildah", "commit", "--quiet", "--rm", container, BASE)


def _pause() -> Path:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_PAUSE_SOURCES.glob("*.go"))))
    return binaries.program(_PAUSE_SOURCES, f"pause-{digest.hexdigest()[:12]}")


def _of_one_program(tag: str, program: Path, archives: Path, name: str = "") -> Path:
    """An image with nothing in it but a program without dependencies, at /usr/local/bin under its name."""
    name = name or program.name
    archive = archives / f"{name}-{_digest(program)}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory(prefix="homeport-image-") as folder:
            shutil.copy(program, Path(folder) / name)
            lines = (
                "FROM scratch",
                f"COPY {name} /usr/local/bin/",
                "ENV PATH=/usr/local/bin",
                f'ENTRYPOINT ["{name}"]',
            )
            (Path(folder) / "Dockerfile").write_text("\n".join(lines))
            run("buildah", "bud", "--quiet", "--isolation=chroot", f"--tag={tag}", folder)
        _write(tag, archive, archives, name)
    return archive


def _archive(tag: str, archives: Path) -> Path:
    found = run("buildah", "inspect", "--type=image", "--format={{.FromImageID}}", tag)
    archive = archives / f"homeport-{found[:12]}.tar"
    if not archive.exists():
        _write(tag, archive, archives, "homeport")
    return archive


def _write(tag: str, archive: Path, archives: Path, name: str) -> None:
    """Write it, and remove those of former contents that no cluster may be starting with."""
    unfinished = archive.with_name(f".{archive.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    run("buildah", "push", "--quiet", tag, f"docker-archive:{unfinished}:{tag}")
    if name in ("homeport", "pause"):
        for former in archives.glob(f"{name}-*.tar"):
            if former.stat().st_mtime < time.time() - _KEPT_SECONDS:
                former.unlink()
    unfinished.replace(archive)


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:12]


def run(*command: str | Path) -> str:
    """What a command prints, without the last line's end; `ImageError` when it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout.strip()
