"""The plugin for krew: one archive without dependencies that prints what the Homeport of the cluster answers."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from app.__main__ import main
from app.commands.cluster_pages import SERVICES
from krew import kubectl_homeport
from tests import krew
from tests.api.service import SAMPLE
from tests.api.village import COMPLETE, DELEGATED, configured
from tests.cluster.image import version
from tests.served import served

HERE: Final = Path(__file__).parent / "krew"
SCHEMA: Final = json.loads((HERE / "manifest.schema.json").read_text(encoding="utf-8"))
FROM: Final = "homeport: the answer comes from Service scheduling/homeport-operator, through the API server\n"
Run = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Installed:
    """The unpacked archive, and a folder for PATH whose kubectl is in front of a Homeport."""

    folder: Path
    path: Path

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.path}{os.pathsep}{self.folder / 'python'}"}

    def run(self, *arguments: str) -> Run:
        command = [str(self.folder / krew.PROGRAM), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def calls(self) -> list[list[str]]:
        """Arguments of each call of kubectl since the last time."""
        calls = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
        self.log.unlink()
        return calls


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    krew.build(folder, "https://downloads.example.com/homeport")
    return folder


@pytest.fixture(scope="module")
def manifest(dist: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((dist / krew.MANIFEST.name).read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a python3 that has the standard library alone."""
    folder = tmp_path_factory.mktemp("krew")
    with tarfile.open(dist / krew.archive_name()) as archive:
        archive.extractall(folder, filter="data")
    (folder / "python").mkdir()
    script = f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n'
    executable(folder / "python" / "python3", script)
    return folder


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("village")
    with served(folder, "--config", configured(folder, DELEGATED, COMPLETE)) as http:
        yield str(http.base_url)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("sample")
    with served(folder, "--cluster", SAMPLE) as http:
        yield str(http.base_url)


def executable(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)


def installed(unpacked: Path, folder: Path, url: str) -> Installed:
    found = Installed(unpacked, folder)
    command = shlex.join([sys.executable, str(HERE / "kubectl.py"), str(found.log), url])
    executable(folder / "kubectl", f'#!/bin/sh\nexec {command} "$@"\n')
    return found


@pytest.fixture
def plugin(unpacked: Path, tmp_path: Path, url: str) -> Installed:
    return installed(unpacked, tmp_path, url)


@pytest.fixture
def sampled(unpacked: Path, tmp_path: Path, sample: str) -> Installed:
    return installed(unpacked, tmp_path, sample)


class TestManifest:
    def test_krew_accepts_it(self, manifest: dict[str, Any]) -> None:
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        assert [] == [it.message for it in jsonschema.Draft202012Validator(SCHEMA).iter_errors(manifest)]

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            pytest.param("spec.version", "0.1.0", id="a version without its v"),
            pytest.param("spec.platforms.0.sha256", "", id="no checksum"),
            pytest.param("spec.platforms.0.selector", {}, id="no platform"),
            pytest.param("spec.platforms.0.bin", None, id="no program"),
            pytest.param("metadata.name", "Homeport", id="a name in capitals"),
            pytest.param("spec.shortDescription", "two\nlines", id="two lines"),
        ],
    )
    def test_a_mistake_would_be_seen(self, manifest: dict[str, Any], path: str, value: object) -> None:
        wrong = json.loads(json.dumps(manifest))
        *parts, last = path.split(".")
        place = wrong
        for part in parts:
            place = place[int(part) if part.isdigit() else part]
        place[last] = value

        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)

    def test_it_is_of_this_version_and_names_the_archive(self, dist: Path, manifest: dict[str, Any]) -> None:
        (platform,) = manifest["spec"]["platforms"]
        archive = (dist / krew.archive_name()).read_bytes()

        assert ("homeport", f"v{version()}") == (manifest["metadata"]["name"], manifest["spec"]["version"])
        assert f"https://downloads.example.com/homeport/{krew.archive_name()}" == platform["uri"]
        assert hashlib.sha256(archive).hexdigest() == platform["sha256"]
        with tarfile.open(dist / krew.archive_name()) as packed:
            assert {"LICENSE", platform["bin"]} == set(packed.getnames())
            assert 0o755 == packed.getmember(platform["bin"]).mode

    def test_two_builds_are_equal(self, dist: Path, tmp_path: Path) -> None:
        krew.build(tmp_path, "https://downloads.example.com/homeport")

        for name in (krew.archive_name(), krew.MANIFEST.name):
            assert (dist / name).read_bytes() == (tmp_path / name).read_bytes()


class TestArchive:
    def test_it_needs_the_standard_library_alone(self, unpacked: Path) -> None:
        """And of ``app`` only what it imports; modules of the wheel that import others would fail below."""
        names = set(zipfile.ZipFile(unpacked / krew.PROGRAM).namelist())

        assert {"__main__.py", "kubectl_homeport.py", "app/commands/explain.py", "app/kube/names.py"} < names
        assert not {"app/commands/service.py", "app/commands/homes.py"} & names

    def test_it_says_its_version_and_its_name(self, plugin: Installed) -> None:
        assert f"{version()}\n" == plugin.run("--version").stdout
        assert plugin.run("explain", "--help").stdout.startswith("usage: kubectl homeport explain ")

    def test_it_searches_the_services_that_the_wheel_searches(self) -> None:
        assert SERVICES == kubectl_homeport.SERVICES


SAME: Final = [
    ("homes", "-A"),
    ("homes", "-n", "machines", "--away", "-o", "wide"),
    ("homes", "-A", "--contradictory", "--no-headers"),
    ("homes", "-A", "--orphaned", "-o", "name"),
    ("homes", "-A", "--node", "n1", "-o", "json"),
    ("pending", "-A", "-o", "json"),
    ("pending", "-n", "machines", "-o", "name"),
    ("drain", "n1"),
    ("drain", "n1", "-o", "wide"),
    ("drain", "n1", "-o", "json"),
]
EXPLAINED: Final = [
    ("web-7d4b9c-new01", "-n", "shop"),
    ("shop/web-7d4b9c-new01", "-o", "wide"),
    ("pod/web-7d4b9c-new01", "-n", "shop", "--node", "node-a1"),
    ("machines/virt-launcher-db01-x7k2p", "-o", "json"),
    ("-l", "app=web", "-n", "shop"),
    ("rs/web-7d4b9c", "-n", "shop"),
]


@pytest.mark.parametrize("arguments", SAME, ids=" ".join)
def test_it_prints_what_homeport_prints(
    plugin: Installed, url: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    run = plugin.run(*arguments)
    code = main([*arguments, "--server", url, "--quiet"])

    assert (code, capsys.readouterr().out) == (run.returncode, run.stdout)
    assert run.stderr.startswith(FROM)


@pytest.mark.parametrize("arguments", EXPLAINED, ids=" ".join)
def test_it_explains_what_homeport_explains(
    sampled: Installed, sample: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    run = sampled.run("explain", *arguments)
    code = main(["explain", *arguments, "--server", sample, "--quiet"])

    assert (code, capsys.readouterr().out, FROM) == (run.returncode, run.stdout, run.stderr)
    assert run.stdout


def test_kubectl_gets_the_flags_and_names_the_namespace(plugin: Installed) -> None:
    run = plugin.run("homes", "--away", "-o", "name", "--context", "here", "--as", "reader", "-q")
    (view, services, status, homes) = plugin.calls()

    assert (0, "virtualmachine.kubevirt.io/idle01\n", "") == (run.returncode, run.stdout, run.stderr)
    assert ["config", "view"] == view[:2]
    assert ["get", "services", "-A", "-l", SERVICES] == services[:5]
    assert status[2].endswith("/proxy/api/v1/status")
    assert homes[2].endswith("/proxy/api/v1/homes?namespace=machines&away=true&limit=500")
    assert [["--context", "here", "--as", "reader"]] * 4 == [call[-4:] for call in (view, services, status, homes)]


def test_there_is_no_homeport(plugin: Installed) -> None:
    run = plugin.run("pending", "-A", "--homeport-namespace", "elsewhere")

    said = "homeport: there is no operator Service of Homeport: see operatorService of its chart\n"
    assert (3, "", said) == (run.returncode, run.stdout, run.stderr)


def test_an_error_is_that_of_homeport(plugin: Installed) -> None:
    run = plugin.run("explain", "nothing", "-n", "shop", "-q")

    assert (3, "") == (run.returncode, run.stdout)
    assert "nothing" in run.stderr
    assert "Error from server" not in run.stderr


def test_a_node_that_is_not_there(plugin: Installed) -> None:
    run = plugin.run("drain", "n99", "-q")

    assert (3, "homeport: there is no node 'n99'\n") == (run.returncode, run.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain",),
        ("explain", "web", "-l", "app=web"),
        ("explain", "deploy/web", "--node", "n1"),
        ("pending", "-n", "Not A Name"),
        ("explain", "a b/c"),
        ("explain", "shop/web", "-n", "machines"),
        ("homes", "-o", "yaml"),
        (),
    ],
    ids=" ".join,
)
def test_wrong_usage(plugin: Installed, arguments: tuple[str, ...]) -> None:
    run = plugin.run(*arguments)

    assert (2, "") == (run.returncode, run.stdout)


def test_without_kubectl(unpacked: Path, tmp_path: Path) -> None:
    run = Installed(unpacked, tmp_path).run("pending", "-A")

    assert (3, "homeport: kubectl: No such file or directory\n") == (run.returncode, run.stderr)


def test_the_log_of_kubectl_is_left_out(plugin: Installed) -> None:
    told = ('E1124 18:33:06.073805 26497 memcache.go:265] "Unhandled Error"', "The connection was refused")
    executable(plugin.path / "kubectl", f"#!/bin/sh\nprintf '%s\\n' '{told[0]}' '{told[1]}' >&2\nexit 1\n")
    run = plugin.run("pending", "-A")

    assert (3, "homeport: The connection was refused\n") == (run.returncode, run.stderr)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("{}", "has no field 'next'"),
        ('{"items": null, "next": null}', "has another type"),
        ('{"items": ["web"], "next": null}', "has another type"),
    ],
)
def test_a_homeport_of_another_version(plugin: Installed, answer: str, told: str) -> None:
    service = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"ports": [{"port": 1}]}}
    services, status = json.dumps({"items": [service]}), '{"feeds": {}}'
    answers = f"case $2$3 in services*) echo '{services}';; */status) echo '{status}';; *) echo '{answer}';; esac"
    executable(plugin.path / "kubectl", f"#!/bin/sh\n{answers}\n")
    run = plugin.run("pending", "-A", "-q")

    assert (3, "") == (run.returncode, run.stdout)
    assert run.stderr.startswith(f"homeport: the answer {told}: the Homeport there is another version than")


@pytest.mark.parametrize("status", ["{}", '{"feeds": []}'])
def test_a_server_that_is_no_homeport(plugin: Installed, status: str) -> None:
    service = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"ports": [{"port": 1}]}}
    answers = f"case $2 in services) echo '{json.dumps({'items': [service]})}';; *) echo '{status}';; esac"
    executable(plugin.path / "kubectl", f"#!/bin/sh\n{answers}\n")
    run = plugin.run("pending", "-A", "-q")

    assert (3, "homeport: Service b/a: the answer is not that of a Homeport\n") == (run.returncode, run.stderr)


def test_services_in_several_namespaces(plugin: Installed) -> None:
    services = [{"metadata": {"name": "a", "namespace": it}, "spec": {"ports": [{"port": 1}]}} for it in ("b", "a")]
    executable(plugin.path / "kubectl", f"#!/bin/sh\necho '{json.dumps({'items': services})}'\n")
    run = plugin.run("pending", "-A", "-q")

    said = "homeport: Homeport has Services in several namespaces: use --homeport-namespace a or b\n"
    assert (3, said) == (run.returncode, run.stderr)


def test_a_pipe_without_a_reader_ends_it_in_silence(plugin: Installed) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(plugin.folder / krew.PROGRAM), "homes", "-A", "-q"]
    run = subprocess.run(command, env=plugin.environment, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)

    assert (-signal.SIGPIPE, b"") == (run.returncode, run.stderr)


def test_an_old_python_is_told(unpacked: Path) -> None:
    source = zipfile.ZipFile(unpacked / krew.PROGRAM).read("__main__.py").decode()
    script = f"import sys\nsys.version_info = (3, 9, 2)\n{source}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert 3 == run.returncode
    assert run.stderr.startswith("homeport: Python 3.11 or newer is needed, and python3 is ")
