"""What a release consists of has one version, everywhere that states it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import release
from tests.cluster.image import default_image

ROOT = Path(__file__).parents[2]


def test_package_chart_and_image_have_one_version() -> None:
    versions = release.versions()

    assert {"pyproject.toml", "chart", "appVersion of the chart", "image"} == versions.keys()
    assert 1 == len(set(versions.values())), versions


def test_the_documents_show_that_version() -> None:
    page = (ROOT / "docs" / "release.md").read_text(encoding="utf-8")
    shown = (ROOT / "docs" / "image.md").read_text(encoding="utf-8") + page

    assert {default_image()} == set(re.findall(r"localhost/homeport:[0-9][0-9.]*[0-9]", shown))
    assert [] == [name for name in (*release.files().values(), release.SUMS) if f"`{name}`" not in page]


def test_what_is_missing_is_said_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(release, "DIST", tmp_path / "dist")

    code = release.main(["--base=localhost/homeport-base:trixie"])

    told = capsys.readouterr().err
    assert (1, False) == (code, (tmp_path / "dist").exists())
    assert [] == [name for name in ("buildah, podman, docker", "mmdebstrap", "git", "sha256sum") if name not in told]
