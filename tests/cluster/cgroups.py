"""A cgroup of a cluster's own in every hierarchy, so that what containers leave there is known and can be removed.

Outside, the process that starts a cluster makes them and removes them when it has ended. Inside, a cgroup namespace and
fresh mounts make them the roots: containerd makes its cgroups below, as on a machine of its own.
"""

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PREFIX: Final = "homeport-cluster-"
_MOUNTS: Final = Path("/proc/mounts")
_OF_ANY_MOUNT: Final = frozenset(("rw", "ro", "relatime", "nosuid", "nodev", "noexec"))
_INHERITED: Final = ("cpuset.cpus", "cpuset.mems")
"""Files of cgroups v1 that are empty in a new cgroup, in which then nothing may run."""

_END_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where one is mounted, of which kind (`cgroup`, `cgroup2`), and which controllers it has."""

    root: Path
    kind: str
    options: tuple[str, ...]

    def mount_command(self) -> list[str]:
        """Mount it where it is, as the namespace sees it now."""
        named = any(option.startswith("name=") for option in self.options)
        options = ",".join(["none", *self.options] if named else self.options)
        return ["mount", "-t", self.kind, *(["-o", options] if options else []), self.kind, str(self.root)]


def hierarchies(mounts: str) -> list[Hierarchy]:
    """Those in the text of /proc/mounts: one with cgroups v2, several with v1."""
    found = (line.split() for line in mounts.splitlines())
    return [
        Hierarchy(Path(root), kind, tuple(option for option in options.split(",") if option not in _OF_ANY_MOUNT))
        for _, root, kind, options, *_ in found
        if kind in ("cgroup", "cgroup2")
    ]


def here() -> list[Hierarchy]:
    """Those of this machine, as this process sees them."""
    return hierarchies(_MOUNTS.read_text(encoding="utf-8"))


def make(name: str) -> list[Path]:
    """The cgroups of a cluster; returns the files into which a process writes its id to be in them."""
    doors: list[Path] = []
    for hierarchy in here():
        folder = hierarchy.root / name
        folder.mkdir(exist_ok=True)
        for inherited in _INHERITED:
            if hierarchy.kind == "cgroup" and (folder / inherited).exists():
                (folder / inherited).write_text((hierarchy.root / inherited).read_text())
        doors.append(folder / "cgroup.procs")
    return doors


def enter_command(doors: Sequence[Path], command: Sequence[str]) -> list[str]:
    """A command line that runs a command in the cgroups of these doors."""
    script = "".join(f'echo $$ > "{door}"; ' for door in doors) + 'exec "$@"'
    return ["sh", "-ec", script, "sh", *command]


def become_root() -> None:
    """Inside, before anything else runs: this process' cgroups are all that is seen of the hierarchies."""
    for hierarchy in here():
        subprocess.run(["umount", str(hierarchy.root)], check=True)  # of this namespace; a second mount is refused
        subprocess.run(hierarchy.mount_command(), check=True)
        if hierarchy.kind == "cgroup2":  # a cgroup with cgroups below it may have no process of its own
            (hierarchy.root / "init").mkdir()
            (hierarchy.root / "init" / "cgroup.procs").write_text("0")


def remove(name: str) -> None:
    """Remove a cluster's, once all that ran in them has ended; `OSError` when something still does."""
    deadline = time.monotonic() + _END_SECONDS
    for folder in _folders(name):
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def remove_left_over() -> None:
    """Those of clusters whose starter was killed. Those in which something runs stay: they are not empty."""
    for folder in _folders(f"{PREFIX}*"):
        with suppress(OSError):
            folder.rmdir()


def _folders(pattern: str) -> list[Path]:
    """What lies below, the deepest first."""
    tops = [top for hierarchy in here() for top in hierarchy.root.glob(pattern)]
    return [folder for top in tops for folder in sorted([top, *top.glob("**/")], key=lambda path: -len(path.parts))]
