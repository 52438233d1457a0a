"""Every dependency has a line that says what it replaces, and the locks can be used anywhere."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME = PROJECT["project"]["dependencies"]
GROUPS = PROJECT["dependency-groups"]
BUILD = GROUPS["build"]
DEV = [line for line in GROUPS["dev"] if line != {"include-group": "build"}] + BUILD
EXTRAS = PROJECT["project"]["optional-dependencies"]


def test_every_dependency_says_what_it_replaces() -> None:
    page = (ROOT / "docs" / "adr" / "0002-dependencies.md").read_text(encoding="utf-8")

    assert {_name(line) for line in RUNTIME + DEV} == {
        name.lower() for name in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    }


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        pytest.param("requirements.lock", RUNTIME, id="run time"),
        pytest.param("requirements-dev.lock", RUNTIME + DEV, id="everything"),
        pytest.param("requirements-otlp.lock", RUNTIME + EXTRAS["otlp"], id="with the extra"),
        pytest.param("requirements-build.lock", BUILD, id="what makes the wheel"),
    ],
)
def test_a_lock_pins_all_that_is_asked_for_with_hashes_and_names_no_address(lock: str, wanted: list[str]) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    requirements = re.split(r"\n(?=\w)", text)[1:]

    assert {_name(line) for line in wanted} <= {_name(line) for line in requirements}
    assert [line for line in requirements if "--hash=sha256:" not in line] == []
    assert re.findall(r"://|--index|--extra-index|--find-links|--trusted-host|(?<=\s)/\w+", text) == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-otlp.lock", "requirements-build.lock"])
def test_the_locks_agree(lock: str) -> None:
    everything = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    part = (ROOT / lock).read_text(encoding="utf-8")

    assert _pins(part) <= _pins(everything)


def test_what_an_extra_brings_is_tested_and_not_in_the_lock_of_the_run_time() -> None:
    runtime = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = {_name(line) for line in re.split(r"\n(?=\w)", runtime)[1:]}

    assert {"otlp"} == EXTRAS.keys()
    assert {_name(line) for line in EXTRAS["otlp"]} <= {_name(line) for line in DEV}
    assert set() == {_name(line) for line in EXTRAS["otlp"]} & pinned
    assert "protobuf" not in pinned


def test_the_lock_of_the_image_is_that_of_the_run_time_and_what_the_extra_brings() -> None:
    plain, image = (
        _pins((ROOT / lock).read_text(encoding="utf-8")) for lock in ("requirements.lock", "requirements-otlp.lock")
    )
    brought = {pin.partition("==")[0] for pin in image - plain}

    assert plain <= image
    assert {_name(line) for line in EXTRAS["otlp"]} <= brought
    assert [] == [name for name in brought if not re.match("opentelemetry-|protobuf$|googleapis-common-protos$", name)]


def test_the_image_is_made_from_that_lock_and_from_nothing_that_is_kept_from_its_build() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()

    assert "requirements-otlp.lock requirements-build.lock" in copied
    assert [] == [path for line in copied for path in line.split() if f"!{path}" not in sent]


def _pins(lock: str) -> set[str]:
    return set(re.findall(r"^\w\S*==\S+", lock, re.MULTILINE))


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
