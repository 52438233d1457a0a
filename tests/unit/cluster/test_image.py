"""What the image's builder asks of each engine, and what of this machine it hands to a build."""

from pathlib import Path

import pytest

from tests.cluster import image
from tests.cluster.image import Engine, ImageError


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which commands are looked for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, name: str, says: str = "", code: int = 0) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    program.chmod(0o755)


def test_without_an_engine_it_says_which_would_do(empty_path: Path) -> None:
    with pytest.raises(ImageError, match=r"^none of buildah, podman, docker is installed"):
        Engine.found()


@pytest.mark.parametrize(
    ("name", "inspects", "expected"),
    [
        pytest.param(
            "buildah", 0, ["bud", "--layers", "--isolation", "chroot", "--pull=never"], id="a base that is here"
        ),
        pytest.param("buildah", 1, ["bud", "--layers", "--isolation", "chroot"], id="a base that has to be pulled"),
        pytest.param("podman", 0, ["build", "--pull=never"], id="podman"),
        pytest.param("docker", 0, ["build"], id="docker looks for itself"),
    ],
)
def test_the_command_that_builds(empty_path: Path, name: str, inspects: int, expected: list[str]) -> None:
    install(empty_path, name, code=inspects)

    command = Engine(name).build_command("base:1", "mine:2", {"pip.conf": Path("/a/pip.conf")}, "abc")

    assert [
        name,
        *expected,
        "--network=host",
        "--build-arg=BASE=base:1",
        f"--build-arg=VERSION={image.version()}",
        "--build-arg=REVISION=abc",
        "--secret=id=pip.conf,src=/a/pip.conf",
        "--tag=mine:2",
        str(image.ROOT),
    ] == command


def test_a_failing_engine_is_an_error(empty_path: Path) -> None:
    install(empty_path, "docker", code=3)

    with pytest.raises(ImageError, match=r"^docker could not build mine:2 on base:1$"):
        image.build(Engine("docker"), "mine:2", "base:1")


def test_what_pip_is_told_here_is_told_to_the_build_and_left_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_text("an authority")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example.com/simple")
    monkeypatch.setenv("PIP_CERT", str(authority))
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    with image.pip_secrets() as secrets:
        told = {name: path.read_text() for name, path in secrets.items()}

    settings = "[global]\ndefault-timeout = 7\nindex-url = https://index.example.com/simple\ncert = /etc/pip.pem\n"
    assert {"pip.pem": "an authority", "pip.conf": settings} == told
    assert [] == [path for path in secrets.values() if path.exists()]
