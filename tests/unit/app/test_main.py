"""The command line: what it says, and the exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE

import pytest
import yaml

from app import __main__ as command_line
from app.__main__ import kubectl, main
from app.commands.arguments import FLAGS
from app.config.mistakes import as_model, bare, field_names
from app.config.settings import Settings
from app.telemetry import tracing
from tests.api.small import saved


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*Settings.model_fields, "config"):
        monkeypatch.delenv(f"HOMEPORT_{name.upper()}", raising=False)
    monkeypatch.setattr(command_line, "configure", lambda *_: None)  # logs are set up for a whole process


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What ``serve`` was called with: it does not end by itself."""
    served: list[Settings] = []
    monkeypatch.setattr(command_line, "serve", lambda settings, *_, **__: served.append(settings))
    return served


@pytest.mark.parametrize(
    "command", [pytest.param(["plugins"], id="long output"), pytest.param(["version"], id="short output")]
)
def test_a_command_ends_quietly_by_sigpipe_if_its_output_is_a_closed_pipe(command: list[str]) -> None:
    """As other programs do: ``homeport plugins | head -1``."""
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run([sys.executable, "-m", "homeport", *command], stdout=write, stderr=PIPE, check=False)
    finally:
        os.close(write)

    assert (-signal.SIGPIPE, b"") == (ended.returncode, ended.stderr)


def test_a_closed_standard_output_gives_no_traceback() -> None:
    """As ``homeport version >&-``."""
    command = ["sh", "-c", f"exec {sys.executable} -m homeport version >&-"]
    ended = subprocess.run(command, stderr=PIPE, check=False)

    assert (0, b"") == (ended.returncode, ended.stderr)


def test_a_list_ends_quietly_by_sigpipe_if_its_reader_has_gone(tmp_path: Path) -> None:
    """As ``homeport homes -A | head -1``, where the rest is longer than a pipe holds."""
    home = {"namespace": "default", "annotations": {"homeport.dev/home": "n1"}}
    homes = [
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": f"vm-{number}", **home},
            "spec": {},
        }
        for number in range(3000)
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    (tmp_path / "cluster").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *homes]}))
    command = [
        sys.executable,
        "-m",
        "homeport",
        "homes",
        "-A",
        "-o",
        "name",
        "-q",
        "--saved",
        str(tmp_path / "cluster"),
    ]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.read(1)
        process.stdout.close()
        told = process.stderr.read()

    assert (b"v", b"", -signal.SIGPIPE) == (first, told, process.returncode)


def test_version_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert [0, 0] == [main(["version", "-o", "json"]), kubectl(["version", "-o", "yaml"])]

    out = capsys.readouterr().out
    assert f'{{\n  "version": "{version("homeport")}"\n}}\nversion: {version("homeport")}\n' == out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["version"])
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert 0 == ended.value.code
    assert f"{version('homeport')}\n" * 2 == capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--help"], ["serve", "version", "evaluate", "explain", "rbac", "plugins"], id="homeport"),
        pytest.param(
            ["serve", "--help"],
            [
                *(f"--{flag.name} " for flag in FLAGS),
                *(f"HOMEPORT_{flag.setting.upper()}" for flag in FLAGS),
                "--config",
                "HOMEPORT_CONFIG",
                "apiVersion: homeport.dev/v1alpha1",
                "homeport serve --cluster examples/sample-cluster.yaml",
                "/filter, /prioritize, /preempt, /bind",
            ],
            id="homeport serve",
        ),
    ],
)
def test_help(capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    text = " ".join(capsys.readouterr().out.split())
    assert (0, []) == (ended.value.code, [word for word in words if word not in text])


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no command"),
        pytest.param(["server"], id="no such command"),
        pytest.param(["serve", "--colour", "blue"], id="no such flag"),
        pytest.param(["serve", "--port"], id="a flag without its value"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert 2 == ended.value.code
    assert "usage: homeport" in capsys.readouterr().err


def test_an_unknown_flag_is_reported_with_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["homes", "list", "--colour"])

    told = capsys.readouterr().err
    assert told.startswith("usage: homeport homes list ")
    assert told.endswith("homeport homes list: error: unrecognized arguments: --colour\n")


def test_every_setting_has_a_flag_except_profiles() -> None:
    """Those of a nested one each their own."""
    places = [
        (written, *inner)
        for written, name in field_names(Settings).items()
        for model in (as_model(bare(Settings.model_fields[name].annotation)[0]),)
        for inner in ([(part,) for part in field_names(model)] if model is not None else [()])
    ]

    assert [("profiles",)] == [place for place in places if place not in {flag.place for flag in FLAGS}]
    assert len(places) - 1 == len({flag.name for flag in FLAGS})


def test_leader_election_has_the_flags_of_kube_scheduler(served: list[Settings]) -> None:
    """As ``kube-scheduler --help`` names them; a part that no flag gives keeps its default."""
    resource = ("resource-lock", "resource-name", "resource-namespace")
    parts = ("lease-duration", "lock-file", "renew-deadline", *resource, "retry-period")
    wanted = {"leader-elect", *(f"leader-elect-{part}" for part in parts)}

    assert 0 == main(["serve", "--cluster=c", "--leader-elect=false", "--leader-elect-lease-duration", "20s"])
    assert 0 == main(["serve", "--cluster=c", "--leader-elect-resource-namespace", "town", "--insecure", "--port=1"])

    first, second = served
    assert wanted == {flag.name for flag in FLAGS if flag.setting == "leader_election"}
    assert (20.0, 10.0, "kube-system") == (
        first.leader_election.lease_duration,
        first.leader_election.renew_deadline,
        first.leader_election.resource_namespace,
    )
    assert ("town", True, 1) == (second.leader_election.resource_namespace, second.insecure, second.port)


def test_tracing_without_the_extra_is_a_mistake(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, served: list[Settings], tmp_path: Path
) -> None:
    arguments = ["serve", "--cluster=c", "--tracing-endpoint=http://collector:4318"]
    assert 0 == main(arguments)

    monkeypatch.setattr(tracing, "find_spec", _no_module)
    assert 2 == main(arguments)
    assert (
        'homeport: tracing.endpoint "http://collector:4318" (flag --tracing-endpoint): '
        "needs OpenTelemetry's SDK and exporter: pip install '.[otlp]' in Homeport's source\n"
    ) == capsys.readouterr().err
    assert [(it.tracing.endpoint, it.tracing.sampling_rate_per_million) for it in served] == [
        ("http://collector:4318", 0)
    ]


def _no_module(name: str) -> None:
    """As ``find_spec`` does where a package around it is missing."""
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize(
    "endpoint",
    ["", "collector:4318", "ftp://collector", "http://", "http://[", "http://c:x", "http://c?a=b", "http://c#d"],
)
def test_an_endpoint_that_is_none(endpoint: str, capsys: pytest.CaptureFixture[str], served: list[Settings]) -> None:
    assert 2 == main(["serve", "--cluster=c", f"--tracing-endpoint={endpoint}"])
    assert (
        f'homeport: tracing.endpoint "{endpoint}" (flag --tracing-endpoint): '
        "must be the URL of a collector for OTLP over HTTP, such as http://collector:4318\n"
    ) == capsys.readouterr().err


def test_the_file_is_named_by_a_flag_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: list[Settings]
) -> None:
    for name, port in (("flag", 1), ("environment", 2)):
        document = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", "port": port}
        (tmp_path / name).write_text(yaml.safe_dump(document))
    monkeypatch.setenv("HOMEPORT_CONFIG", str(tmp_path / "environment"))

    assert 0 == main(["serve", "--cluster=c"])
    assert 0 == main(["serve", "--cluster=c", "--config", str(tmp_path / "flag")])

    assert [2, 1] == [settings.port for settings in served]


def test_every_mistake_is_a_line_and_the_exit_code_is_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, served: list[Settings]
) -> None:
    monkeypatch.setenv("HOMEPORT_MAX_PRIORITY", "1000")

    assert 2 == main(["serve", "--cluster=c", "--port", "x", "--http-timeout", "never"])

    lines = capsys.readouterr().err.splitlines()
    assert [
        (
            'homeport: httpTimeout "never" (flag --http-timeout): must be a duration such as 5s, 500ms or 1m30s, '
            "from 500ms to 10m"
        ),
        'homeport: maxPriority "1000" (variable HOMEPORT_MAX_PRIORITY): must be a whole number, from 1 to 100',
        'homeport: port "x" (flag --port): must be a whole number, from 0 to 65535',
    ] == sorted(lines)
    assert [] == served


FALLBACK = {"name": "PodTopologySpread", "args": {"beyond": {"fallback": {"after": "10m"}}}}


class TestServe:
    """Mistakes that only show when the parts are put together. Nothing is listened on."""

    @pytest.fixture(autouse=True)
    def _no_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("uvicorn.Server.run", lambda *_: pytest.fail("it serves"))

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            pytest.param(
                {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
                [
                    (
                        'profiles[0].schedulerName "a" ({}, line 4), profiles[1].schedulerName "a" ({}, line 5): '
                        'profiles: schedulerName "a" is used by more than one profile'
                    )
                ],
                id="one name twice",
            ),
            pytest.param(
                {"explain": "profile", "profiles": [{"schedulerName": "a", "pluginConfig": [FALLBACK]}]},
                [
                    (
                        'profiles[0] {"schedulerName": "a", "pluginConfig": [{"name": "PodTopologySpread", "args": {… '
                        "({}, line 5), "
                        'explain "profile" ({}, line 3): profile "a": beyond.fallback of PodTopologySpread needs '
                        "explain: complete, because all filters of kube-scheduler must be judged"
                    )
                ],
                id="fallback without explain: complete",
            ),
        ],
    )
    def test_bad_profiles(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, object], said: list[str]
    ) -> None:
        head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
        (tmp_path / "config").write_text(yaml.safe_dump({**head, **fields}, sort_keys=False))

        assert 2 == main(["serve", "--config", str(tmp_path / "config"), "--cluster", saved(tmp_path)])
        said = [line.replace("{}", str(tmp_path / "config")) for line in said]
        assert [f"homeport: {line}" for line in said] == capsys.readouterr().err.splitlines()

    def test_all_mistakes_of_all_profiles_are_shown_in_one_round(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sticky = {"name": "StickyNode"}
        fields = {
            "httpTimeout": 5,
            "profiles": [
                {"schedulerName": "a", "preset": "complet", "pluginConfig": [{**sticky, "args": {"gracePeriod": 15}}]},
                {"schedulerName": "b", "plugins": {"filter": {"enabled": [{"weight": 1}, {"name": "Nonsense"}]}}},
                {
                    "schedulerName": "c",
                    "preset": "complete",
                    "plugins": {"queueSort": {"disabled": [{"name": "*"}]}},
                    "pluginConfig": [
                        {**sticky, "args": {"gracePeriod": True, "owners": [{"apiVersion": "v1", "kind": "Pod"}]}},
                        {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": True}},
                    ],
                },
            ],
        }
        head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
        (tmp_path / "config").write_text(yaml.safe_dump({**head, **fields}, sort_keys=False))

        assert 2 == main(["serve", "--config", str(tmp_path / "config"), "--cluster", saved(tmp_path)])
        places = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
        assert [
            "httpTimeout",
            "profiles[0].preset",
            "profiles[1].plugins.filter.enabled[0].name",
            "profiles[0].pluginConfig[0].args.gracePeriod",
            "profiles[1].plugins.filter.enabled[1].name",
            "profiles[2].pluginConfig[1].args.bindTimeoutSeconds",
            "profiles[2].pluginConfig[0].args.gracePeriod",
            "profiles[2].pluginConfig[0].args.owners[0]",
            "profiles[2].plugins",
        ] == places

    def test_a_bad_cluster(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "empty").write_text(json.dumps({"kind": "List", "items": []}))

        assert 2 == main(["serve", "--cluster", str(tmp_path / "empty")])
        assert (
            f"homeport: {tmp_path / 'empty'}: it has no Node: there is nothing to schedule to\n"
            == capsys.readouterr().err
        )

    def test_a_bad_kubeconfig(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "none"

        assert 2 == main(["serve", "--kubeconfig", str(path)])
        assert (
            f'homeport: kubeconfig "{path}" (flag --kubeconfig): kubeconfig {path}: there is no such file\n'
            == capsys.readouterr().err
        )
