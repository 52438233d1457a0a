"""Settings come from the command line, the environment, the file, the defaults; all mistakes are said at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.config.profile import DEFAULT_PROFILES
from app.config.settings import LeaderElection, Settings, SettingsError, load_settings, parse_duration, read_config

HEAD = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}


@pytest.fixture(autouse=True)
def no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HOMEPORT_{name.upper()}", raising=False)


OPEN: Final = {"insecure": "true"}
PAIR: Final = {"tls_cert_file": "tls.crt", "tls_private_key_file": "tls.key", "client_ca_file": "ca.crt"}


def config(folder: Path, **fields: Any) -> str:
    path = folder / "homeport.yaml"
    path.write_text(yaml.safe_dump({**HEAD, **fields}))
    return str(path)


class TestDurations:
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            pytest.param("5s", 5.0, id="seconds"),
            pytest.param("500ms", 0.5, id="milliseconds"),
            pytest.param("1m30s", 90.0, id="two units"),
            pytest.param("2h", 7200.0, id="hours"),
            pytest.param("1.5s", 1.5, id="a fraction"),
            pytest.param("0s", 0.0, id="nothing"),
            pytest.param("1h1m1s1ms", 3661.001, id="all units"),
            pytest.param(5, 5, id="a number is left as it is"),
            pytest.param(None, None, id="so is anything else"),
        ],
    )
    def test_as_go_writes_them(self, value: object, seconds: float | None) -> None:
        assert seconds == parse_duration(value)

    @pytest.mark.parametrize("value", ["5", "", "s", "5 s", "-5s", "5s ", "five", "5d", "1_0s", "5s5"])
    def test_anything_else_is_refused(self, value: str) -> None:
        with pytest.raises(ValueError, match=f'^"{value}" is not a duration such as 5s, 500ms or 1m30s$'):
            parse_duration(value)


class TestSources:
    def test_defaults(self) -> None:
        found = load_settings({})

        assert {
            "kubeconfig": None,
            "cluster": None,
            "host": "127.0.0.1",
            "port": 8888,
            "tls": None,
            "operator_host": "127.0.0.1",
            "operator_port": None,
            "operator_tls": None,
            "peer_host": "",
            "peer_port": None,
            "tls_cert_file": None,
            "tls_private_key_file": None,
            "client_ca_file": None,
            "allowed_names": (),
            "reader_names": (),
            "open_reads": False,
            "insecure": False,
            "max_connections": 2000,
            "http_timeout": 5.0,
            "max_priority": 10,
            "max_body_bytes": 134217728,
            "max_in_flight": 100,
            "due_bind_wait": 0.05,
            "sampling_guard": True,
            "bind_others": True,
            "max_feed_age": 180.0,
            "repair_interval": 60.0,
            "leader_election": LeaderElection(),
            "advertise_address": None,
            "log_level": "info",
            "log_format": "json",
            "profiles": DEFAULT_PROFILES,
        } == dict(found)

    @pytest.mark.parametrize(
        ("given", "environ", "in_file", "port"),
        [
            pytest.param({}, {}, {}, 8888, id="nothing: the default"),
            pytest.param({}, {}, {"port": 1}, 1, id="the file"),
            pytest.param({}, {"HOMEPORT_PORT": "2"}, {"port": 1}, 2, id="the environment before the file"),
            pytest.param({"port": "3"}, {"HOMEPORT_PORT": "2"}, {"port": 1}, 3, id="the command line before all"),
            pytest.param({"port": "3"}, {}, {"port": 1}, 3, id="the command line before the file"),
            pytest.param({}, {"homeport_port": "2"}, {}, 2, id="the environment in any case"),
        ],
    )
    def test_precedence(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        given: dict[str, str],
        environ: dict[str, str],
        in_file: dict[str, Any],
        port: int,
    ) -> None:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)

        assert port == load_settings(given, config=config(tmp_path, **in_file)).port

    def test_each_source_gives_what_the_others_do_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOMEPORT_HTTP_TIMEOUT", "2s")

        found = load_settings({"port": "3"}, config=config(tmp_path, maxPriority=100, dueBindWait="0s"))

        assert (3, 2.0, 100, 0.0, "127.0.0.1") == (
            found.port,
            found.http_timeout,
            found.max_priority,
            found.due_bind_wait,
            found.host,
        )

    def test_other_variables_are_nobody_s_business(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOMEPORT_CONFIG", "/etc/homeport.yaml")
        monkeypatch.setenv("HOMEPORT_COLOUR", "blue")

        assert load_settings({}) == Settings()

    def test_profiles_in_the_file(self, tmp_path: Path) -> None:
        profiles = [{"schedulerName": "mine", "plugins": {"multiPoint": {"disabled": [{"name": "*"}]}}}]

        (found,) = load_settings({}, config=config(tmp_path, profiles=profiles)).profiles

        assert ("mine", "*") == (found.scheduler_name, found.plugins.multi_point.disabled[0].name)

    def test_profiles_in_the_environment_are_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOMEPORT_PROFILES", '[{"schedulerName": "mine"}]')

        assert ["mine"] == [profile.scheduler_name for profile in load_settings({}).profiles]

    def test_an_empty_file_but_for_its_head(self, tmp_path: Path) -> None:
        assert load_settings({}, config=config(tmp_path)) == Settings()

    def test_of_a_kube_scheduler_configuration_the_profiles_are_taken(self, tmp_path: Path) -> None:
        path = tmp_path / "scheduler.yaml"
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        path.write_text(yaml.safe_dump({**head, "parallelism": 16, "profiles": [{"schedulerName": "mine"}]}))

        found = load_settings({}, config=str(path))

        assert (["mine"], 8888) == ([profile.scheduler_name for profile in found.profiles], found.port)


class TestMistakes:
    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            pytest.param({"port": 70000}, "port: Input should be less than or equal to 65535", id="too large"),
            pytest.param({"port": "http"}, "port: Input should be a valid integer", id="no number"),
            pytest.param(
                {"httpTimeout": "100ms"}, "httpTimeout: Input should be greater than or equal to 0.5", id="short"
            ),
            pytest.param({"httpTimeout": "5"}, 'httpTimeout: Value error, "5" is not a duration', id="no unit"),
            pytest.param({"maxPriority": 0}, "maxPriority: Input should be greater than", id="too small"),
            pytest.param({"dueBindWait": "2s"}, "dueBindWait: Input should be less than", id="too long"),
            pytest.param(
                {"logLevel": "loud"}, "logLevel: Input should be 'debug', 'info', 'warning' or 'error'", id="no level"
            ),
            pytest.param({"profiles": []}, "profiles: Tuple should have at least 1 item", id="no profile"),
            pytest.param(
                {"profiles": [{"plugins": {"multipoint": {}}}]},
                "profiles.0.plugins.multipoint: unknown setting",
                id="a misspelt extension point",
            ),
            pytest.param({"colour": "blue"}, "colour: unknown setting", id="no such setting"),
        ],
    )
    def test_a_mistake_is_named_as_it_was_written(self, tmp_path: Path, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(SettingsError) as refused:
            load_settings({}, config=config(tmp_path, **fields))

        assert said in str(refused.value)

    def test_all_mistakes_are_said_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOMEPORT_MAX_PRIORITY", "1000")

        with pytest.raises(SettingsError) as refused:
            load_settings({"port": "x"}, config=config(tmp_path, httpTimeout="never", colour="blue"))

        assert {"port", "maxPriority", "httpTimeout", "colour"} == {
            line.partition(":")[0] for line in str(refused.value).splitlines()
        }

    def test_profiles_in_the_environment_that_are_no_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOMEPORT_PROFILES", "mine")

        with pytest.raises(SettingsError, match="profiles"):
            load_settings({})

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            pytest.param("a: [", "is not YAML: ", id="no YAML"),
            pytest.param("", "expected a mapping with apiVersion and kind", id="empty"),
            pytest.param("[]", "expected a mapping with apiVersion and kind", id="a list"),
            pytest.param(
                "port: 1",
                "expected apiVersion: homeport.dev/v1alpha1 and kind: HomeportConfiguration, "
                "or a KubeSchedulerConfiguration; found None, None",
                id="no head",
            ),
            pytest.param(
                "{apiVersion: homeport.dev/v1, kind: HomeportConfiguration}",
                "expected apiVersion",
                id="a version to come",
            ),
            pytest.param("{apiVersion: v1, kind: Pod}", "expected apiVersion", id="another document"),
        ],
    )
    def test_a_file_that_is_none_of_ours(self, tmp_path: Path, text: str, said: str) -> None:
        path = tmp_path / "homeport.yaml"
        path.write_text(text)

        with pytest.raises(SettingsError) as refused:
            read_config(path)

        assert str(refused.value).startswith(f"{path}: {said}")

    @pytest.mark.parametrize("name", ["none", "."])
    def test_a_file_that_cannot_be_read(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(SettingsError, match="cannot be read: "):
            read_config(tmp_path / name)

    def test_a_file_that_is_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")

        with pytest.raises(SettingsError, match="cannot be read: "):
            read_config(tmp_path / "binary")


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]


class TestLeaderElection:
    """Several replicas: their words are KubeSchedulerConfiguration's, and each must say where it is reached."""

    @pytest.fixture(autouse=True)
    def _no_pod(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("POD_IP", raising=False)

    def test_as_kube_scheduler_writes_it(self, tmp_path: Path) -> None:
        asked = {"leaderElect": True, "leaseDuration": "30s", "renewDeadline": "20s", "resourceNamespace": "here"}

        found = load_settings({}, config=config(tmp_path, leaderElection=asked)).leader_election

        assert (
            LeaderElection(lease_duration=30.0, renew_deadline=20.0, leader_elect=True, resource_namespace="here")
            == found
        )

    @pytest.mark.parametrize(
        ("given", "environ", "address"),
        [
            pytest.param({}, {}, "127.0.0.1:8888", id="where it listens"),
            pytest.param({"host": "::1"}, {}, "[::1]:8888", id="with brackets around an address of version 6"),
            pytest.param(
                {"host": "0.0.0.0", **OPEN}, {"POD_IP": "10.1.2.3"}, "10.1.2.3:8888", id="the pod's, on all of them"
            ),
            pytest.param({"host": "::", **OPEN}, {"POD_IP": "fd00::3"}, "[fd00::3]:8888", id="of version 6 too"),
            pytest.param(
                {"peer_port": "9443", **PAIR}, {"POD_IP": "10.1.2.3"}, "10.1.2.3:9443", id="the peer listener's"
            ),
            pytest.param({"advertise_address": "a:1", "port": "0"}, {"POD_IP": "b"}, "a:1", id="what is said"),
        ],
    )
    def test_where_it_is_reached(
        self, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], environ: dict[str, str], address: str
    ) -> None:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)

        assert address == load_settings({"leader_election": {"leaderElect": True}, **given}).advertised

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            pytest.param(
                {"cluster": "c"},
                "leaderElection: a saved cluster has no leases, several replicas need an API server",
                id="a saved cluster",
            ),
            pytest.param(
                {"host": "0.0.0.0", **OPEN},
                "advertiseAddress: the other replicas cannot be told where this one is: it listens on all addresses "
                "and $POD_IP is not set, or on a port that is not known yet",
                id="on all addresses",
            ),
            pytest.param(
                {"tls_cert_file": "c", "tls_private_key_file": "k"},
                "clientCAFile: replicas that speak TLS to each other check who the other one is by it",
                id="TLS between replicas that could not know each other",
            ),
            pytest.param(
                {"port": "0"},
                "advertiseAddress: the other replicas cannot be told where this one is: it listens on all addresses "
                "and $POD_IP is not set, or on a port that is not known yet",
                id="on any port",
            ),
            pytest.param(
                {"leader_election": {"leaderElect": True, "leaseDuration": "10s"}},
                "leaderElection: Value error, leaseDuration must be longer than renewDeadline, and that longer than "
                "retryPeriod",
                id="a lease no longer than its deadline",
            ),
            pytest.param(
                {"leader_election": {"leaderElect": True, "retryPeriod": "6s"}},
                "leaderElection: Value error, retryPeriod must be at most a third of leaseDuration",
                id="renewals too rare",
            ),
        ],
    )
    def test_what_cannot_be(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(SettingsError) as refused:
            load_settings({"leader_election": {"leaderElect": True}, **given})

        assert said == str(refused.value)

    def test_without_it_nothing_of_that_matters(self) -> None:
        assert not load_settings({"cluster": "c", "port": "0"}).leader_election.leader_elect


def open_to_all(host: str) -> str:
    return (
        f"host: {host or 'every address'} is not on loopback: whoever reaches it could bind any pod. "
        "Give tlsCertFile, tlsPrivateKeyFile and clientCAFile, or say insecure: true"
    )


class TestTrust:
    """Who may call the verbs is settled before anything is listened on."""

    @pytest.mark.parametrize(
        "given",
        [
            pytest.param({}, id="on loopback, whoever is on this machine"),
            pytest.param({"host": "::1"}, id="of version 6 too"),
            pytest.param({"host": "localhost"}, id="by name"),
            pytest.param({"host": "0.0.0.0", **PAIR}, id="off loopback, who has a certificate"),
            pytest.param({"host": "0.0.0.0", **OPEN}, id="off loopback, anybody, in so many words"),
            pytest.param(
                {"operator_host": "0.0.0.0", "operator_port": "8889"}, id="an operator listener is for anybody"
            ),
            pytest.param({"peer_port": "9443", "tls": "false", **PAIR}, id="replicas over TLS, verbs on loopback"),
        ],
    )
    def test_what_can_be(self, given: dict[str, str]) -> None:
        assert set(given) <= set(dict(load_settings(given)))

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            *(
                pytest.param(
                    {"host": host, **others},
                    [open_to_all(host)],
                    id=f"off loopback: {host or 'every address'}, {why}",
                )
                for host in ("0.0.0.0", "::", "10.0.0.1", "homeport.example", "")
                for others, why in (
                    ({}, "nothing said"),
                    ({"tls_cert_file": "c", "tls_private_key_file": "k"}, "TLS without an authority"),
                    ({**PAIR, "tls": "false", "operator_port": "1"}, "an authority without TLS"),
                )
            ),
            pytest.param(
                {"tls_cert_file": "c"},
                ["tlsCertFile, tlsPrivateKeyFile: a certificate and its key are given together"],
                id="a certificate without its key",
            ),
            pytest.param(
                {"tls": "true", "operator_tls": "true"},
                [
                    "tls: needs tlsCertFile and tlsPrivateKeyFile",
                    "operatorTls: needs tlsCertFile and tlsPrivateKeyFile",
                ],
                id="TLS without a certificate",
            ),
            pytest.param(
                {**PAIR, "tls": "false"},
                ["clientCAFile: asks for certificates of callers, and no listener speaks TLS"],
                id="an authority that is never asked",
            ),
            pytest.param(
                {"allowed_names": "a,b"},
                ["allowedNames: needs clientCAFile, and verbs that are answered over TLS"],
                id="names without certificates",
            ),
            pytest.param(
                {**PAIR, "reader_names": "a", "operator_port": "1", "operator_tls": "false"},
                ["readerNames: needs clientCAFile, and an operator listener that speaks TLS"],
                id="readers without certificates",
            ),
            pytest.param(
                {"peer_port": "1"},
                [
                    "peerPort: needs tlsCertFile, tlsPrivateKeyFile and clientCAFile: replicas know each other by them",
                ],
                id="replicas without certificates",
            ),
        ],
    )
    def test_what_cannot_be(self, given: dict[str, str], said: list[str]) -> None:
        with pytest.raises(SettingsError) as refused:
            load_settings(given)

        assert said == str(refused.value).splitlines()

    def test_names_are_written_with_commas_or_as_a_list(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HOMEPORT_ALLOWED_NAMES", "system:kube-scheduler, spiffe://here/scheduler,")
        from_variable = load_settings(PAIR).allowed_names
        monkeypatch.delenv("HOMEPORT_ALLOWED_NAMES")
        fields = {"tlsCertFile": "c", "tlsPrivateKeyFile": "k", "clientCAFile": "a", "allowedNames": ["one", "two"]}

        assert ("system:kube-scheduler", "spiffe://here/scheduler") == from_variable
        assert ("one", "two") == load_settings({}, config=config(tmp_path, **fields)).allowed_names
