"""Rules of the doorstep: nothing of ``app`` or ``plugins`` runs before its place has been compared with the record."""

import base64
import hashlib
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import homeport

CHECKOUT = Path(homeport.__file__).parent.parent
PACKAGES = ("app", "plugins")


@pytest.fixture(autouse=True)
def nothing_imported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in PACKAGES:
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages with Homeport's packages in it."""
    return _packages(tmp_path / "site-packages", *PACKAGES)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with packages of the same names, which fail the test if they are executed."""
    return _packages(tmp_path / "elsewhere", *PACKAGES)


def test_an_editable_install_expects_the_checkout_it_points_to(
    site: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(elsewhere)])

    assert [] == list(homeport.refusals(_editable(site, checkout=elsewhere)))


def test_a_checkout_path_may_hold_any_character(site: Path) -> None:
    checkout = Path("/home/my name/100 %")

    expected = homeport.expectation("app", _editable(site, checkout))

    assert checkout / "app" / "__init__.py" == expected.file


def test_a_plain_checkout_expects_both_beside_the_doorstep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(CHECKOUT)])

    assert [] == list(homeport.refusals(None))


def test_a_plain_checkout_refuses_packages_from_elsewhere(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(elsewhere), str(CHECKOUT)])

    assert _places(homeport.refusals(None)) == [
        (package, str(elsewhere / package / "__init__.py"), CHECKOUT / package / "__init__.py") for package in PACKAGES
    ]


def test_a_folder_before_ours_is_refused_by_its_place_on_the_path(
    site: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(elsewhere), str(site)])

    refusal = next(homeport.refusals(_wheel(site)))

    assert refusal == homeport.Refusal(
        package="app",
        location=str(elsewhere / "app" / "__init__.py"),
        expected=homeport.Expectation(site / "app" / "__init__.py", "the installed homeport 0.1.0"),
        cause=f"sys.path[0] = {str(elsewhere)!r} comes first",
        cure=f"start the installed homeport, or take {str(elsewhere)!r} off sys.path",
    )


def test_a_folder_that_pythonpath_put_there_is_named_so(
    site: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(elsewhere), str(site)])
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))

    refusal = next(homeport.refusals(_wheel(site)))

    assert f"PYTHONPATH puts sys.path[0] = {str(elsewhere)!r} first" == refusal.cause
    assert f"unset PYTHONPATH, or take {str(elsewhere)!r} out of it" == refusal.cure


def test_an_empty_entry_of_pythonpath_is_the_current_folder(
    site: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [str(elsewhere), str(site)])
    monkeypatch.setenv("PYTHONPATH", ":/nowhere")

    assert "PYTHONPATH" in next(homeport.refusals(_wheel(site))).cause


def test_another_distribution_before_an_editable_checkout_is_refused(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = _packages(tmp_path / "checkout", *PACKAGES)
    monkeypatch.setattr(sys, "path", [str(site), str(checkout)])

    refusal = next(homeport.refusals(_editable(site, checkout)))

    assert "start the installed homeport, or use a virtual environment of its own" == refusal.cure


def test_a_module_of_that_name_is_refused_like_a_package(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").write_text("raise AssertionError", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(site)])

    assert _places(homeport.refusals(_wheel(site))) == [
        ("app", str(tmp_path / "app.py"), site / "app" / "__init__.py"),
    ]


def test_a_folder_without_init_shadows_nothing(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(site)])

    assert [] == list(homeport.refusals(_wheel(site)))


def test_a_folder_without_init_is_not_mistaken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "plugins").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert [str(tmp_path / package) for package in PACKAGES] == [each.location for each in homeport.refusals(None)]


def test_a_package_that_is_nowhere_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])

    refusal = next(homeport.refusals(_wheel(site)))

    assert ("nothing", "no entry of sys.path holds 'app'") == (refusal.location, refusal.cause)


def test_a_package_that_another_wheel_wrote_over_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(site)])
    dist = _wheel(site)
    (site / "plugins" / "__init__.py").write_text("raise AssertionError('not ours')", encoding="utf-8")

    (refusal,) = homeport.refusals(dist)

    assert "another distribution in this environment also brings 'plugins' and wrote over it" == refusal.cause


def test_a_record_without_hashes_is_trusted_for_the_place_alone(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(site)])

    assert [] == list(homeport.refusals(_dist(site, record="app/__init__.py,,\nplugins/__init__.py,,\n")))


def test_refusing_names_everything_on_stderr_and_answers_2(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(elsewhere)])

    assert homeport.main(["version"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    for words in ("refusing to start", "'app'", "'plugins'", "found:", "expected:", "cause:", "cure:", str(elsewhere)):
        assert words in err


def _places(refusals: Iterable[homeport.Refusal]) -> list[tuple[str, str, Path]]:
    return [(each.package, each.location, each.expected.file) for each in refusals]


def _packages(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise AssertionError('executed')\n", encoding="utf-8")
    return folder


def _wheel(site: Path) -> Distribution:
    return _dist(site, record="".join(_record_line(site, package) for package in PACKAGES))


def _editable(site: Path, checkout: Path) -> Distribution:
    dist = _dist(site, record="homeport.pth,,\n")
    origin = f'{{"url": "{checkout.as_uri()}", "dir_info": {{"editable": true}}}}'
    (site / "homeport-0.1.0.dist-info" / "direct_url.json").write_text(origin, encoding="utf-8")
    return dist


def _dist(site: Path, record: str) -> Distribution:
    info = site / "homeport-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: homeport\nVersion: 0.1.0\n", encoding="utf-8")
    (info / "RECORD").write_text(record, encoding="utf-8")
    return Distribution.at(info)


def _record_line(site: Path, package: str) -> str:
    init = site / package / "__init__.py"
    digest = base64.urlsafe_b64encode(hashlib.sha256(init.read_bytes()).digest()).decode().rstrip("=")
    return f"{package}/__init__.py,sha256={digest},{init.stat().st_size}\n"
