"""Entry point: check that ``app`` and ``plugins`` are Homeport's own packages, then start the command line.

The package names ``app`` and ``plugins`` are common: a folder on ``PYTHONPATH`` or another distribution can contain a
package of the same name, which Python would import instead. Such a package must not make scheduling decisions. So
before any of their code runs, the locations of both packages, and the recorded hashes of their ``__init__.py``, are
checked against the installed distribution. If none is installed, both must be beside ``homeport``.
``homeport`` itself is not checked, because a package that shadows it also replaces this check.

Authors of plugins import ``homeport.plugin`` and, in tests, ``homeport.testing``. Both modules call
``require_own_packages`` first. The command line is in ``app.__main__``.
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
    """File that importing a package must execute. ``authority``: why this path is expected, as text for the user."""

    file: Path
    authority: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal to start because of one package. ``cure``: what the operator can do."""

    package: str
    location: str
    expected: Expectation
    cause: str
    cure: str

    def __str__(self) -> str:
        return (
            f"homeport: refusing to start: the package {self.package!r} would not be Homeport's own\n"
            f"  found:    {self.location}\n"
            f"  expected: {self.expected.file} ({self.expected.authority})\n"
            f"  cause:    {self.cause}\n"
            f"  cure:     {self.cure}\n"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run Homeport's command line, and return its exit code. If it cannot start, print why to stderr and return 2."""
    if _refused():
        return REFUSED
    from app.__main__ import main as command_line

    return command_line(argv)


def kubectl(argv: Sequence[str] | None = None) -> int:
    """Run ``kubectl homeport``, and return its exit code. If it cannot start, print why to stderr and return 2."""
    if _refused():
        return REFUSED
    from app.__main__ import kubectl as command_line

    return command_line(argv)


def kubectl_complete(argv: Sequence[str] | None = None) -> int:
    """Run ``kubectl_complete-homeport``, which prints completions for kubectl, and return its exit code.

    If it cannot start, print why to stderr and return 2.
    """
    if _refused():
        return REFUSED
    from app.__main__ import kubectl_complete as command_line

    return command_line(argv)


def _refused() -> bool:
    """Print to stderr why Homeport cannot start. Return True if there is a reason."""
    reasons = tuple(refusals(installed()))
    if reasons:  # without reasons, stderr is not used, because it can be closed
        sys.stderr.writelines(map(str, reasons))
    return bool(reasons)


def require_own_packages() -> None:
    """Raise ``ImportError`` with the message of ``main`` unless ``app`` and ``plugins`` are Homeport's own.

    It does not raise ``SystemExit``, which would end a test runner, editor or type checker that imports a plugin.
    """
    reasons = tuple(refusals(installed()))
    if reasons:
        raise ImportError("".join(map(str, reasons)), name=reasons[0].package)


def installed() -> Distribution | None:
    """Return the installed distribution, or None in a plain checkout."""
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def refusals(dist: Distribution | None) -> Iterator[Refusal]:
    """Yield a refusal for each package that is not Homeport's own."""
    for package in PACKAGES:
        expected = expectation(package, dist)
        location = locate(package)
        if location is None:
            yield _missing(package, expected)
        elif location.resolve() != expected.file.resolve():
            yield _shadowed(package, location, expected)
        elif dist is not None and not _as_recorded(package, dist):
            yield _overwritten(package, expected)


def expectation(package: str, dist: Distribution | None) -> Expectation:
    """Return the ``__init__.py`` that importing ``package`` must execute.

    It is in the checkout of an editable install, else in the installed distribution. If no distribution is installed
    (a plain checkout), it is in the folder beside ``homeport``.
    """
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
    """Return the file that importing ``package`` would execute, without importing it.

    For a package without ``__init__.py``, return its folder. Return ``None`` if the package does not exist.
    """
    spec = find_spec(package)
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin)
    return next((Path(folder) for folder in spec.submodule_search_locations or ()), None)


def _editable_checkout(dist: Distribution) -> Path | None:
    """Return the folder that an editable install points to (PEP 610), or None if the install is not editable."""
    text = dist.read_text("direct_url.json")
    origin = json.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def _as_recorded(package: str, dist: Distribution) -> bool:
    """Return False if the hash of the package's ``__init__.py`` is not the recorded one: another wheel overwrote it.

    Return True if no hash is recorded.
    """
    init = f"{package}/__init__.py"
    recorded = next((path for path in dist.files or () if path.as_posix() == init), None)
    if recorded is None or recorded.hash is None:  # an editable install, or a package of a distributor without hashes
        return True
    digest = hashlib.new(recorded.hash.mode, recorded.read_binary()).digest()
    return recorded.hash.value == base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _missing(package: str, expected: Expectation) -> Refusal:
    return Refusal(
        package,
        location="nothing",
        expected=expected,
        cause=f"no entry of sys.path holds {package!r}",
        cure="install homeport again, or start it from a complete checkout",
    )


def _overwritten(package: str, expected: Expectation) -> Refusal:
    return Refusal(
        package,
        location=f"{expected.file}, with other contents",
        expected=expected,
        cause=f"another distribution in this environment also brings {package!r} and wrote over it",
        cure="install homeport into a virtual environment of its own",
    )


def _shadowed(package: str, location: Path, expected: Expectation) -> Refusal:
    folder = location.parent.parent if location.name == "__init__.py" else location.parent
    cause, cure = _shadow(folder)
    return Refusal(package, str(location), expected, cause, cure)


def _shadow(folder: Path) -> tuple[str, str]:
    """Return why Python finds a package in ``folder`` instead of in the expected place, and what the user can do."""
    place = _path_entry(folder)
    if _in_pythonpath(folder):
        return f"PYTHONPATH puts {place} first", f"unset PYTHONPATH, or take {str(folder)!r} out of it"
    if folder.name in {"site-packages", "dist-packages"}:
        return f"{place} comes first", "start the installed homeport, or use a virtual environment of its own"
    return f"{place} comes first", f"start the installed homeport, or take {str(folder)!r} off sys.path"


def _path_entry(folder: Path) -> str:
    """Return the entry of ``sys.path`` that is the folder, or an import hook if there is none, as text for the user."""
    for position, entry in enumerate(sys.path):
        if Path(entry).resolve() == folder.resolve():
            return f"sys.path[{position}] = {entry!r}"
    return f"an import hook for {str(folder)!r}"


def _in_pythonpath(folder: Path) -> bool:
    value = os.environ.get("PYTHONPATH", "")
    return bool(value) and any(Path(entry).resolve() == folder.resolve() for entry in value.split(os.pathsep))
