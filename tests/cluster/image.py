"""Builds Homeport's image with what there is: buildah, podman or docker; and measures it.

    make image                                  # localhost/homeport:VERSION on debian:trixie-slim
    make image IMAGE=registry.example.com/homeport:1.2.3 BASE=debian:13.1-slim
    make image MEASURE=1                        # also its size over the base, and start to ready on the sample cluster

Nothing of this machine gets into the image. How pip reaches its index here (an index, a proxy, an authority) is given
to the build as two secrets, which are files for the one step that needs them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from tests.controlplane.processes import free_port

ROOT: Final = Path(__file__).parents[2]
ENGINES: Final = ("buildah", "podman", "docker")
BASE: Final = "debian:trixie-slim"
PIP_SETTINGS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "cert")
CERTIFICATES_INSIDE: Final = "/etc/pip.pem"
"""Where the Dockerfile has the second secret."""

START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.02
_MEGABYTE: Final = 1_000_000


class ImageError(Exception):
    """An image could not be made or run; the message says what is missing, or which command failed."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The program that builds, by its name in `ENGINES`."""

    name: str

    @classmethod
    def found(cls, names: Sequence[str] = ENGINES) -> "Engine":
        """The first of these that is installed; `ImageError` names them where none is."""
        for name in names:
            if shutil.which(name):
                return cls(name)
        raise ImageError(f"none of {', '.join(names)} is installed; one of them builds the image")

    def build_command(self, base: str, image: str, secrets: Mapping[str, Path], revision: str) -> list[str]:
        """The command that builds the checkout's image."""
        arguments = {"BASE": base, "VERSION": version(), "REVISION": revision}
        return [
            self.name,
            *(["bud", "--layers", "--isolation", "chroot"] if self.name == "buildah" else ["build"]),
            *(["--pull=never"] if self.name != "docker" and self.has(base) else []),
            "--network=host",
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            *(f"--secret=id={name},src={path}" for name, path in secrets.items()),
            f"--tag={image}",
            str(ROOT),
        ]

    def has(self, image: str) -> bool:
        """Whether it has an image without asking anybody."""
        look = [self.name, "inspect", "--type=image", image]
        return subprocess.run(look, capture_output=True, check=False).returncode == 0

    def size(self, image: str) -> int:
        """Bytes of an image, unpacked."""
        listed = {"buildah": ["images", "--json", image], "podman": ["image", "inspect", image]}
        found = json.loads(_output([self.name, *listed.get(self.name, ["image", "inspect", image])]))[0]
        return _bytes(found["size"] if self.name == "buildah" else found["Size"])


def version() -> str:
    """Homeport's own, from pyproject.toml."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return found


def default_image() -> str:
    """What the chart asks for without a registry."""
    return f"localhost/homeport:{version()}"


def revision() -> str:
    """The commit of the checkout, `-dirty` where it was changed since; `unknown` without git."""
    if not shutil.which("git"):
        return "unknown"
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


@contextmanager
def pip_secrets() -> Iterator[dict[str, Path]]:
    """What pip is told on this machine as files for the build, by the ids in the Dockerfile; gone after the block."""
    settings = pip_settings()
    with tempfile.TemporaryDirectory(prefix="homeport-image-") as folder:
        secrets: dict[str, Path] = {}
        if certificates := settings.pop("cert", ""):
            secrets["pip.pem"] = Path(shutil.copy(certificates, Path(folder) / "pip.pem"))
            settings["cert"] = CERTIFICATES_INSIDE
        if settings:
            secrets["pip.conf"] = Path(folder) / "pip.conf"
            lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
            secrets["pip.conf"].write_text(f"[global]\n{lines}", encoding="utf-8")
        yield secrets


def pip_settings() -> dict[str, str]:
    """What pip's files and variables say here about how to reach an index."""
    listed = _output([sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"])
    settings: dict[str, str] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if option in PIP_SETTINGS and (section in ("global", "install") or option not in settings):
            settings[option] = value.strip("'\"")
    return settings


def build(engine: Engine, image: str, base: str = BASE) -> None:
    """Build it, with the output of the engine on standard error; `ImageError` when that fails."""
    with pip_secrets() as secrets:
        command = engine.build_command(base, image, secrets, revision())
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
            raise ImageError(f"{engine.name} could not build {image} on {base}")


def start_to_ready(image: str) -> float:
    """Seconds from running a container to a 200 of /readyz, on the sample cluster, with nothing to write to."""
    engine = Engine.found(("podman", "docker"))
    port, name = free_port(), f"homeport-measured-{os.getpid()}"
    serve = ["serve", "--cluster=/usr/share/homeport/sample-cluster.yaml", f"--port={port}", "--log-level=error"]
    command = [engine.name, *_confined(engine), "--rm", "--name", name, "--network=host", image, *serve]
    started = time.monotonic()
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        while not _is_ready(port):
            if running.poll() is not None or time.monotonic() > started + START_SECONDS:
                raise ImageError(f"{image} did not get ready: {' '.join(command)}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - started
    finally:
        subprocess.run([engine.name, "stop", "--time=5", name], capture_output=True, check=False)
        running.wait()


def _confined(engine: Engine) -> list[str]:
    """A container as the chart's pods are: no privileges, nothing to write to."""
    runtime = ["--runtime=runc"] if engine.name == "podman" and shutil.which("runc") else []
    limits = ["--ulimit=nofile=20000:20000", "--ulimit=nproc=1024:1024"]
    return [*runtime, "run", *limits, "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=1).is_success
    except httpx.TransportError:
        return False


def _bytes(size: object) -> int:
    """What buildah says in words (`281 MB`), the others in bytes."""
    if isinstance(size, int):
        return size
    number, _, unit = str(size).partition(" ")
    return int(float(number) * {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}[unit])


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def figures(engine: Engine, image: str, base: str) -> dict[str, float]:
    """Megabytes over the base, and seconds until it is ready: the best of three, the first one unpacks."""
    over = (engine.size(image) - engine.size(base)) / _MEGABYTE
    return {"megabytes_over_the_base": over, "seconds_to_ready": min(start_to_ready(image) for _ in range(3))}


def main() -> int:
    """Build, and with --measure print the figures as JSON."""
    parser = argparse.ArgumentParser("python -m tests.cluster.image", description="Build Homeport's image.")
    parser.add_argument("--image", default=default_image(), help="its name (default: %(default)s)")
    parser.add_argument("--base", default=BASE, help="what it is built on (default: %(default)s)")
    parser.add_argument("--measure", action="store_true", help="print its size, and how long it takes to be ready")
    arguments = parser.parse_args()
    try:
        engine = Engine.found()
        build(engine, arguments.image, arguments.base)
        print(arguments.image)
        if arguments.measure:
            print(json.dumps(figures(engine, arguments.image, arguments.base), indent=2))
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
