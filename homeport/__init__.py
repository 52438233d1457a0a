"""The doorstep: look at where ``app`` and ``plugins`` would come from, then go in.

Both are names that a folder on ``PYTHONPATH`` or another distribution easily shadows, and a scheduler that runs
somebody else's ``app`` is worse than one that does not start. So nothing of either package is executed before its
place has been compared with the record of the installed distribution. ``homeport`` itself is not compared: where
another package of that name is imported, that one runs, and this check does not.

Authors of plugins import ``homeport.plugin`` and, in tests, ``homeport.testing``; both begin with
``require_own_packages``. Not here: anything else. The command line is ``app.__main__``.
"""

import base64
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "homeport"
PACKAGES: Final = ("app", "plugins")
REFUSED: Final = 2


@dataclass(frozen=True, slots=True)
class Expectation:
    """The file an import of a package has to execute, and on whose word."""

    file: Path
    authority: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the program does not start, in words an operator can act on."""

    package: str
    found: str
    expected: Expectation
    cause: str
    cure: str

    def __str__(self) -> str:
        return (
            f"homeport: refusing to start: the package {self.package!r} would not be Homeport's own\n"
            f"  found:    {self.found}\n"
            f"  expected: {self.expected.file} ({self.expected.authority})\n"
            f"  cause:    {self.cause}\n"
            f"  cure:     {self.cure}\n"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Start Homeport's command line, or say on stderr why not and answer 2."""
    reasons = tuple(refusals(installed()))
    if reasons:
        sys.stderr.writelines(map(str, reasons))
        return REFUSED
    from app.__main__ import main as command_line

    return command_line(argv)


def require_own_packages() -> None:
    """Raise ``ImportError`` with the words of ``main`` unless ``app`` and ``plugins`` are Homeport's own.

    Not ``SystemExit``: what imports a plugin may be a test runner, an editor or a type checker, which must survive it.
    """
    reasons = tuple(refusals(installed()))
    if reasons:
        raise ImportError("".join(map(str, reasons)), name=reasons[0].package)


def installed() -> Distribution | None:
    """The installed distribution, or None in a plain checkout."""
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def refusals(dist: Distribution | None) -> Iterator[Refusal]:
    """One refusal for each package that is not Homeport's own."""
    for package in PACKAGES:
        expected = expectation(package, dist)
        found = locate(package)
        if found is None:
            yield _missing(package, expected)
        elif found.resolve() != expected.file.resolve():
            yield _shadowed(package, found, expected)
        elif dist is not None and not _as_recorded(package, dist):
            yield _overwritten(package, expected)


def expectation(package: str, dist: Distribution | None) -> Expectation:
    """What the distribution's record says; in a plain checkout, what lies beside this package."""
    init = f"{package}/__init__.py"
    if dist is None:
        beside = Path(__file__).parent.parent / init
        return Expectation(beside, "beside the package homeport, as no distribution is installed")
    authority = f"the installed {DISTRIBUTION} {dist.version}"
    checkout = _editable_checkout(dist)
    if checkout is not None:
        return Expectation(checkout / init, f"{authority}, editable")
    return Expectation(Path(str(dist.locate_file(init))), authority)


def locate(package: str) -> Path | None:
    """The file that importing ``package`` would execute, or its folder if that has no such file; imports nothing."""
    spec = find_spec(package)
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin)
    return next((Path(folder) for folder in spec.submodule_search_locations or ()), None)


def _editable_checkout(dist: Distribution) -> Path | None:
    """The folder an editable install points to (PEP 610)."""
    text = dist.read_text("direct_url.json")
    origin = json.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def _as_recorded(package: str, dist: Distribution) -> bool:
    """Whether the package's first file is still the one Homeport's wheel brought: two wheels may write to one place."""
    init = f"{package}/__init__.py"
    recorded = next((path for path in dist.files or () if path.as_posix() == init), None)
    if recorded is None or recorded.hash is None:  # editable, or packaged by a distributor without hashes
        return True
    digest = hashlib.new(recorded.hash.mode, recorded.read_binary()).digest()
    return recorded.hash.value == base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _missing(package: str, expected: Expectation) -> Refusal:
    return Refusal(
        package,
        found="nothing",
        expected=expected,
        cause=f"no entry of sys.path holds {package!r}",
        cure="install homeport again, or start it from a complete checkout",
    )


def _overwritten(package: str, expected: Expectation) -> Refusal:
    return Refusal(
        package,
        found=f"{expected.file}, with other contents",
        expected=expected,
        cause=f"another distribution in this environment also brings {package!r} and wrote over it",
        cure="install homeport into a virtual environment of its own",
    )


def _shadowed(package: str, found: Path, expected: Expectation) -> Refusal:
    folder = found.parent.parent if found.name == "__init__.py" else found.parent
    cause, cure = _shadow(folder)
    return Refusal(package, str(found), expected, cause, cure)


def _shadow(folder: Path) -> tuple[str, str]:
    """Cause and cure of a package found in ``folder``."""
    place = _path_entry(folder)
    if _in_pythonpath(folder):
        return f"PYTHONPATH puts {place} first", f"unset PYTHONPATH, or take {str(folder)!r} out of it"
    if folder.name in {"site-packages", "dist-packages"}:
        return f"{place} comes first", "start the installed homeport, or use a virtual environment of its own"
    return f"{place} comes first", f"start the installed homeport, or take {str(folder)!r} off sys.path"


def _path_entry(folder: Path) -> str:
    for position, entry in enumerate(sys.path):
        if Path(entry).resolve() == folder.resolve():
            return f"sys.path[{position}] = {entry!r}"
    return f"an import hook for {str(folder)!r}"


def _in_pythonpath(folder: Path) -> bool:
    value = os.environ.get("PYTHONPATH", "")
    return bool(value) and any(Path(entry).resolve() == folder.resolve() for entry in value.split(os.pathsep))
