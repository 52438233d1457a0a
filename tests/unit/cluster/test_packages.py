"""What is installed, and what is said where it cannot be."""

from pathlib import Path

import pytest

from tests.cluster import packages
from tests.cluster.packages import PackagesError


def programs(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_only_what_is_missing_is_named_each_package_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "CNI", str(tmp_path / "bridge"))
    programs(tmp_path, *(set(packages.PROGRAMS) - {"prometheus", "promtool", "runc"}))

    assert ["containernetworking-plugins", "prometheus", "runc"] == packages.missing_packages()


@pytest.mark.parametrize(
    ("user", "why"), [(1000, "need root"), (0, r"^there is no apt-get; install .* buildah, containerd,")]
)
def test_a_machine_that_cannot_have_a_cluster_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, why: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: user)

    with pytest.raises(PackagesError, match=why):
        packages.install()
