"""Settings come from the command line, the environment, the file, the defaults; all mistakes are said at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.config.loading import SettingsError, load_settings, read_settings
from app.config.sections import LeaderElection
from app.config.settings import Settings

HEAD = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}


@pytest.fixture(autouse=True)
def no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HOMEPORT_{name.upper()}", raising=False)


OPEN: Final = {"insecure": "true"}
PAIR: Final = {"tls_cert_file": "tls.crt", "tls_private_key_file": "tls.key", "client_ca_file": "ca.crt"}


def config(folder: Path, **fields: Any) -> str:
    path = folder / "homeport.yaml"
    path.write_text(yaml.safe_dump({**HEAD, **fields}, sort_keys=False))
    return str(path)


def refused(given: dict[str, Any], *, config: str | None = None) -> str:
    """What is said of settings that cannot be."""
    with pytest.raises(SettingsError) as raised:
        load_settings(given, config=config)
    return str(raised.value)


class TestSources:
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

        found = load_settings({"port": "3"}, config=config(tmp_path, maxPriority=100, expectedBindWait="0s"))

        assert (3, 2.0, 100, 0.0, "127.0.0.1") == (
            found.port,
            found.http_timeout,
            found.max_priority,
            found.expected_bind_wait,
            found.host,
        )

    def test_what_names_the_file_is_no_setting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOMEPORT_CONFIG", "/etc/homeport.yaml")

        assert load_settings({}) == Settings()

    def test_null_in_the_file_is_absent(self, tmp_path: Path) -> None:
        assert load_settings({}, config=config(tmp_path, port=None, profiles=None)) == Settings()

    def test_profiles_in_the_environment_are_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOMEPORT_PROFILES", '[{"schedulerName": "mine"}]')

        assert ["mine"] == [profile.scheduler_name for profile in load_settings({}).profiles]

    def test_of_a_kube_scheduler_configuration_the_profiles_are_taken(self, tmp_path: Path) -> None:
        path = tmp_path / "scheduler.yaml"
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        path.write_text(yaml.safe_dump({**head, "parallelism": 16, "profiles": [{"schedulerName": "mine"}]}))

        found = load_settings({}, config=str(path))

        assert (["mine"], 8888) == ([profile.scheduler_name for profile in found.profiles], found.port)


DURATION = "must be a duration such as 5s, 500ms or 1m30s"


class TestMistakes:
    """Each is a sentence: the setting, its value, where it came from, what is allowed."""

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            pytest.param(
                {"port": 70000}, "port 70000 (FILE, line 3): must be a whole number, from 0 to 65535", id="high"
            ),
            pytest.param({"port": True}, "port true (FILE, line 3): must be a whole number, from 0 to 65535", id="yes"),
            pytest.param(
                {"httpTimeout": "100ms"},
                f'httpTimeout "100ms" (FILE, line 3): {DURATION}, from 500ms to 10m',
                id="short",
            ),
            pytest.param(
                {"httpTimeout": 5},
                f"httpTimeout 5 (FILE, line 3): {DURATION}, from 500ms to 10m: it has no unit",
                id="a number where Go wants a text",
            ),
            pytest.param(
                {"maxFeedAge": float("nan")},
                f"maxFeedAge NaN (FILE, line 3): {DURATION}, 5s or more: it has no unit",
                id="no number at all",
            ),
            pytest.param(
                {"repairInterval": "-5s"},
                f'repairInterval "-5s" (FILE, line 3): {DURATION}, 1s or more: it is below zero',
                id="below zero",
            ),
            pytest.param(
                {"repairInterval": "9999999h"},
                f'repairInterval "9999999h" (FILE, line 3): {DURATION}, 1s or more: '
                "it exceeds the maximum of 292 years",
                id="too long for Go",
            ),
            pytest.param(
                {"logLevel": "loud"},
                'logLevel "loud" (FILE, line 3): must be one of debug, info, warning, error',
                id="no level",
            ),
            pytest.param(
                {"samplingGuard": "maybe"}, 'samplingGuard "maybe" (FILE, line 3): must be true or false', id="neither"
            ),
            pytest.param({"host": 5}, "host 5 (FILE, line 3): must be a string", id="no text"),
            pytest.param(
                {"profiles": []}, "profiles [] (FILE, line 3): must be a list of at least one", id="no profile"
            ),
            pytest.param(
                {"profiles": [{"schedulerName": "a"}, {"plugins": {"multipoint": {}}}]},
                "profiles[1].plugins.multipoint {} (FILE, line 6): no such setting; did you mean multiPoint?",
                id="a misspelt extension point",
            ),
            pytest.param(
                {"profiles": [{"plugins": {"filter": {"enabled": [{"weight": 1}]}}}]},
                "profiles[0].plugins.filter.enabled[0].name (FILE, line 7): is missing",
                id="a plugin without a name",
            ),
            pytest.param(
                {"leaderElection": {"retryPeriod": 2}},
                f"leaderElection.retryPeriod 2 (FILE, line 4): {DURATION}, above 0s: it has no unit",
                id="deeper down",
            ),
            pytest.param({"colour": "blue"}, 'colour "blue" (FILE, line 3): no such setting', id="no such setting"),
            pytest.param(
                {"http_timeout": "5s"},
                'http_timeout "5s" (FILE, line 3): no such setting; did you mean httpTimeout?',
                id="a setting in another spelling",
            ),
            pytest.param(
                {"advertiseAddress": "here"},
                'advertiseAddress "here" (FILE, line 3): must be host:port at which others reach this replica: a name, '
                "an IPv4 address or an IPv6 address in brackets, and a port from 1 to 65535",
                id="no address",
            ),
        ],
    )
    def test_a_mistake_in_the_file(self, tmp_path: Path, fields: dict[str, Any], said: str) -> None:
        path = config(tmp_path, **fields)

        assert said.replace("FILE", path) == refused({}, config=path)

    @pytest.mark.parametrize(
        ("variable", "value", "said"),
        [
            pytest.param("PORT", "", 'port "" (VARIABLE): must be a whole number, from 0 to 65535', id="empty"),
            pytest.param(
                "PORT",
                "tcp://here",
                'port "tcp://here" (VARIABLE): must be a whole number, from 0 to 65535',
                id="no link of a Service",
            ),
            pytest.param(
                "PROFILES",
                "mine",
                'profiles "mine" (VARIABLE): must be JSON: Expecting value: line 1 column 1 (char 0)',
                id="no JSON",
            ),
            pytest.param(
                "LEADER_ELECTION",
                '{"retryPeriod": NaN}',
                'leaderElection "{\\"retryPeriod\\": NaN}" (VARIABLE): must be JSON: NaN is not a number',
                id="no JSON for others",
            ),
            pytest.param(
                "LEADER_ELECTION",
                '{"a": 1, "a": 2}',
                'leaderElection "{\\"a\\": 1, \\"a\\": 2}" (VARIABLE): must be JSON: "a" is set twice',
                id="a key twice",
            ),
            pytest.param("LEADER_ELECTION", "[]", "leaderElection [] (VARIABLE): must be a mapping", id="a list"),
            pytest.param(
                "PROFILES",
                "[" * 20_000,
                f'profiles "{"[" * 78}… (VARIABLE): must be JSON: it is nested too deeply',
                id="nested too deeply",
            ),
        ],
    )
    def test_a_mistake_in_a_variable(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
    ) -> None:
        monkeypatch.setenv(f"HOMEPORT_{variable}", value)

        assert said.replace("VARIABLE", f"variable HOMEPORT_{variable}") == refused({})

    @pytest.mark.parametrize(
        ("variable", "said"),
        [
            ("HOMEPORT_COLOUR", ""),
            ("HOMEPORT_HTTP_TIMEOT", "; did you mean HOMEPORT_HTTP_TIMEOUT?"),
            ("homeport_max_inflight", "; did you mean HOMEPORT_MAX_IN_FLIGHT?"),
            ("HOMEPORT_CONFIGS", "; did you mean HOMEPORT_CONFIG?"),
            ("HOMEPORT_SERVICE_HOST", ""),
        ],
    )
    def test_a_variable_that_is_no_setting(self, monkeypatch: pytest.MonkeyPatch, variable: str, said: str) -> None:
        """Its value is not shown: it may be somebody's secret."""
        monkeypatch.setenv(variable, "blue")

        assert f"variable {variable}: no such setting{said}" == refused({})

    def test_one_variable_in_two_spellings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOMEPORT_PORT", "1")
        monkeypatch.setenv("homeport_port", "2")

        said = 'port "1" (variable HOMEPORT_PORT): is set twice, also by the variable homeport_port'
        assert said == refused({})

    def test_all_mistakes_are_said_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also those that pydantic finds last, and those of the file that could not be settings at all."""
        monkeypatch.setenv("HOMEPORT_MAX_PRIORITY", "1000")
        monkeypatch.setenv("HOMEPORT_COLOUR", "blue")
        monkeypatch.setenv("HOMEPORT_CLUSTER", "c")
        election = {"leaderElect": True}
        path = config(tmp_path, httpTimeout="never", colour="blue", leaderElection=election, kubeconfig="k")

        assert {
            f'colour "blue" ({path}, line 4)',
            "variable HOMEPORT_COLOUR",
            'port "x" (flag --port)',
            'maxPriority "1000" (variable HOMEPORT_MAX_PRIORITY)',
            f'httpTimeout "never" ({path}, line 3)',
            f'leaderElection {{"leaderElect": true}} ({path}, line 5), cluster "c" (variable HOMEPORT_CLUSTER)',
            f'cluster "c" (variable HOMEPORT_CLUSTER), kubeconfig "k" ({path}, line 7)',
        } == {
            line.partition("): ")[0] + ")" if "): " in line else line.partition(":")[0]
            for line in refused({"port": "x"}, config=path).splitlines()
        }

    def test_what_follows_from_a_mistake_is_none(self) -> None:
        """No port is known: that the others cannot be told of it needs no second line."""
        assert 'port "x" (flag --port): must be a whole number, from 0 to 65535' == refused(
            {"host": "0.0.0.0", **OPEN, "port": "x", "leader_election": {"leaderElect": True}}
        )

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            pytest.param(
                "a: [", ", line 1: is not YAML: expected the node content, but found '<stream end>'", id="no YAML"
            ),
            pytest.param("a: 1\n---\nb: 1", ", line 2: is not YAML: but found another document", id="two"),
            pytest.param(
                "a: &a [*a]", ", line 1: is not YAML: an alias refers to its own parent", id="round and round"
            ),
            pytest.param("{[a]: 1}", ", line 1: is not YAML: a key must be a string", id="a list for a key"),
            pytest.param("a: 2026-13-45", ": is not YAML: month must be in 1..12", id="no date"),
            pytest.param("[" * 5000, ": is not YAML: maximum recursion depth exceeded", id="deep"),
            pytest.param("", ": expected HEAD; found no mapping", id="empty"),
            pytest.param("[]", ": expected HEAD; found no mapping", id="a list"),
            pytest.param("port: 1", ": expected HEAD; found None, None", id="no head"),
            pytest.param(
                "{apiVersion: homeport.dev/v1, kind: HomeportConfiguration}",
                ": expected HEAD; found homeport.dev/v1, HomeportConfiguration",
                id="a version to come",
            ),
            pytest.param("{apiVersion: v1, kind: Pod}", ": expected HEAD; found v1, Pod", id="another document"),
        ],
    )
    def test_a_file_that_is_none_of_ours(self, tmp_path: Path, text: str, said: str) -> None:
        path = tmp_path / "homeport.yaml"
        path.write_text(text)
        head = "apiVersion: homeport.dev/v1alpha1 and kind: HomeportConfiguration, or a KubeSchedulerConfiguration"

        assert refused({}, config=str(path)).startswith(f"{path}{said.replace('HEAD', head)}")

    def test_a_key_that_stands_twice(self, tmp_path: Path) -> None:
        path = tmp_path / "homeport.yaml"
        path.write_text(
            "apiVersion: homeport.dev/v1alpha1\nkind: HomeportConfiguration\nport: 1\n"
            "leaderElection:\n  leaderElect: false\n  leaderElect: true\nport: 2\n"
        )

        assert [
            f"{path}, line 7: port is set twice, also in line 3",
            f"{path}, line 6: leaderElection.leaderElect is set twice, also in line 5",
        ] == refused({"port": "3"}, config=str(path)).splitlines()

    @pytest.mark.parametrize("name", ["none", "."])
    def test_a_file_that_cannot_be_read(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(SettingsError, match="cannot be read: "):
            load_settings({}, config=str(tmp_path / name))

    def test_a_file_that_is_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")

        with pytest.raises(SettingsError, match="cannot be read: "):
            load_settings({}, config=str(tmp_path / "binary"))

    def test_what_yaml_merges_is_not_twice(self, tmp_path: Path) -> None:
        path = tmp_path / "homeport.yaml"
        path.write_text(
            "apiVersion: homeport.dev/v1alpha1\nkind: HomeportConfiguration\n"
            "profiles:\n- &a {schedulerName: a, plugins: {multiPoint: {disabled: [{name: x}]}}}\n"
            "- {<<: *a, schedulerName: b}\n"
        )

        found = load_settings({}, config=str(path)).profiles

        assert [("a", "x"), ("b", "x")] == [
            (it.scheduler_name, it.plugins.multi_point.disabled[0].name) for it in found
        ]


LINKS = {
    "HOMEPORT_SERVICE_HOST": "10.96.0.10",
    "HOMEPORT_SERVICE_PORT": "8888",
    "HOMEPORT_SERVICE_PORT_HTTP": "8888",
    "HOMEPORT_PORT": "tcp://10.96.0.10:8888",
    "HOMEPORT_PORT_8888_TCP": "tcp://10.96.0.10:8888",
    "HOMEPORT_PORT_8888_TCP_PROTO": "tcp",
    "HOMEPORT_PORT_8888_TCP_PORT": "8888",
    "HOMEPORT_PORT_8888_TCP_ADDR": "10.96.0.10",
    "HOMEPORT_HTTP_SERVICE_HOST": "fd00::1",
    "HOMEPORT_HTTP_PORT": "udp://[fd00::1]:53",
    "HOMEPORT_HTTP_PORT_53_SCTP": "sctp://[fd00::1]:53",
    "HOMEPORT_HTTP_PORT_53_UDP_PROTO": "udp",
    "HOMEPORT_HTTP_PORT_53_UDP_ADDR": "fd00::1",
}


def test_links_of_services_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes injects them beside a Service named homeport: the process starts, and says that it looks past them."""
    for name, value in LINKS.items():
        monkeypatch.setenv(name, value)

    found = read_settings({})

    assert ((), 8888, sorted(LINKS)) == (found.mistakes, found.settings.port, list(found.sources.variables.links))


def test_the_port_can_still_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMEPORT_PORT", "8889")

    assert (8889, ()) == ((found := read_settings({})).settings.port, found.sources.variables.links)


TLS_HOP: Final = (
    'leaderElection {"leaderElect": true} (flag --leader-elect), clientCAFile (default): replicas that use TLS '
    "verify each other with clientCAFile"
)


class TestTimeLimits:
    def test_one_for_all(self) -> None:
        assert dict.fromkeys(("filter", "prioritize", "preempt", "bind"), 2.0) == Settings(http_timeout=2.0).time_limits

    def test_one_for_each(self, tmp_path: Path) -> None:
        """From a file, a flag and a variable alike."""
        found = load_settings({"bind_timeout": "15m"}, config=config(tmp_path, httpTimeout="3s", filterTimeout="1s"))

        assert {"filter": 1.0, "prioritize": 3.0, "preempt": 3.0, "bind": 900.0} == found.time_limits


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
                'leaderElection {"leaderElect": true} (flag --leader-elect), cluster "c" (flag --cluster): '
                "a saved cluster has no Leases: several replicas need an API server",
                id="a saved cluster",
            ),
            pytest.param(
                {"host": "0.0.0.0", **OPEN},
                'advertiseAddress (default), host "0.0.0.0" (flag --host), port 8888 (default): the address of this '
                "replica is unknown: it listens on all addresses and $POD_IP is not set, or its port is not fixed",
                id="on all addresses",
            ),
            pytest.param(
                {"tls_cert_file": "c", "tls_private_key_file": "k"},
                TLS_HOP,
                id="TLS between replicas that could not know each other",
            ),
            pytest.param(
                {"port": "0"},
                'advertiseAddress (default), host "127.0.0.1" (default), port "0" (flag --port): the address of this '
                "replica is unknown: it listens on all addresses and $POD_IP is not set, or its port is not fixed",
                id="on any port",
            ),
            pytest.param(
                {"leader_election": {"leaderElect": True, "leaseDuration": "10s"}},
                'leaderElection.leaseDuration "10s" (flag --leader-elect-lease-duration), '
                "leaderElection.renewDeadline 10s (default), leaderElection.retryPeriod 2s (default): "
                "leaseDuration must be longer than renewDeadline, and renewDeadline longer than retryPeriod",
                id="a lease no longer than its deadline",
            ),
            pytest.param(
                {"leader_election": {"leaderElect": True, "retryPeriod": "6s"}},
                "leaderElection.leaseDuration 15s (default), "
                'leaderElection.retryPeriod "6s" (flag --leader-elect-retry-period): '
                "retryPeriod must be at most a third of leaseDuration",
                id="renewals too rare",
            ),
        ],
    )
    def test_what_cannot_be(self, given: dict[str, Any], said: str) -> None:
        assert said == refused({"leader_election": {"leaderElect": True}, **given})

    def test_without_it_nothing_of_that_matters(self) -> None:
        assert not load_settings({"cluster": "c", "port": "0"}).leader_election.leader_elect


TOGETHER: Final = "a certificate needs its key, and a key its certificate"
NO_TLS: Final = "has no effect: no listener uses TLS"
PEERS: Final = (
    "needs tlsCertFile, tlsPrivateKeyFile and clientCAFile, or selfSigned: replicas verify each other with them"
)


def open_to_all(host: str) -> str:
    return (
        f'host "{host}" (flag --host): is not a loopback address: every client that reaches it could bind any pod. '
        "Set tlsCertFile, tlsPrivateKeyFile and clientCAFile, or selfSigned, or insecure: true"
    )


class TestPartsByFlags:
    """A flag gives one part of a nested setting; the others are as they would be without it."""

    def test_they_lie_over_what_the_file_says(self, tmp_path: Path) -> None:
        path = config(tmp_path, leaderElection={"leaseDuration": "30s", "resourceName": "mine"})

        found = load_settings({"leader_election": {"leaseDuration": "20s"}}, config=path).leader_election

        assert (20.0, "mine", 10.0) == (found.lease_duration, found.resource_name, found.renew_deadline)

    @pytest.mark.parametrize(
        ("variable", "in_file", "given", "said"),
        [
            pytest.param(
                None,
                {},
                {"leaseDuration": "5"},
                [
                    (
                        'leaderElection.leaseDuration "5" (flag --leader-elect-lease-duration): must be a duration '
                        "such as 5s, 500ms or 1m30s, from 1s to 5m: it has no unit"
                    )
                ],
                id="a flag that says nothing usable",
            ),
            pytest.param(
                None,
                {"leaseDuration": 5, "retryPeriod": 1},
                {"leaseDuration": "20s"},
                [
                    (
                        "leaderElection.retryPeriod 1 ({}, line 5): must be a duration such as 5s, 500ms or 1m30s, "
                        "above 0s: it has no unit"
                    )
                ],
                id="what the file says wrong counts where no flag does",
            ),
            pytest.param(
                "{", None, {"leaseDuration": "20s"}, ["leaderElection"], id="a variable that is no JSON is told of once"
            ),
            pytest.param(
                None,
                {"renewDeadline": "12s"},
                {"leaseDuration": "11s"},
                [
                    (
                        'leaderElection.leaseDuration "11s" (flag --leader-elect-lease-duration), '
                        'leaderElection.renewDeadline "12s" ({}, line 4), leaderElection.retryPeriod 2s (default): '
                        "leaseDuration must be longer than renewDeadline, and renewDeadline longer than retryPeriod"
                    )
                ],
                id="each value is told with where it came from",
            ),
        ],
    )
    def test_what_is_wrong(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        variable: str | None,
        in_file: dict[str, object] | None,
        given: dict[str, str],
        said: list[str],
    ) -> None:
        path = None
        if variable is not None:
            monkeypatch.setenv("HOMEPORT_LEADER_ELECTION", variable)
        if in_file is not None:
            path = config(tmp_path, leaderElection=in_file)

        found = refused({"leader_election": given}, config=path).splitlines()
        assert len(said) == len(found)
        assert [] == [line for line, wanted in zip(found, said, strict=True) if wanted.format(path) not in line]


SELF_SIGNED: Final = {
    "secretNamespace": "here",
    "secretName": "homeport",
    "clientSecretName": "homeport-client",
    "dnsNames": ["homeport.here.svc"],
}


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
            pytest.param({"host": "0.0.0.0", "self_signed": SELF_SIGNED}, id="off loopback, certificates made here"),
            pytest.param(
                {"host": "0.0.0.0", "allowed_names": "homeport-scheduler,b", "self_signed": SELF_SIGNED},
                id="the scheduler's pair among the names",
            ),
            pytest.param(
                {"host": "0.0.0.0", "allowed_names": "b", "self_signed": {**SELF_SIGNED, "clientSecretName": None}},
                id="other names, where no pair is made",
            ),
            pytest.param(
                {"host": "0.0.0.0", "self_signed": {**SELF_SIGNED, "dnsNames": ["b" * 63], "clientName": "ä" * 32}},
                id="names as long as they may be",
            ),
            pytest.param(
                {"peer_port": "9443", "tls": "false", "self_signed": SELF_SIGNED},
                id="replicas with certificates made here",
            ),
        ],
    )
    def test_what_can_be(self, given: dict[str, Any]) -> None:
        assert set(given) <= set(dict(load_settings(given)))

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            *(
                pytest.param(
                    {"host": host, **others}, [open_to_all(host)], id=f"off loopback: {host or 'every address'}, {why}"
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
                ['tlsCertFile "c" (flag --tls-cert-file), tlsPrivateKeyFile (default): ' + TOGETHER],
                id="a certificate without its key",
            ),
            pytest.param(
                {"tls": "true", "operator_tls": "true"},
                [
                    'tls "true" (flag --tls): needs tlsCertFile and tlsPrivateKeyFile, or selfSigned',
                    'operatorTls "true" (flag --operator-tls): needs tlsCertFile and tlsPrivateKeyFile, or selfSigned',
                ],
                id="TLS without a certificate",
            ),
            pytest.param(
                {**PAIR, "tls": "false"},
                ['clientCAFile "ca.crt" (flag --client-ca-file): ' + NO_TLS],
                id="an authority that is never asked",
            ),
            pytest.param(
                {"allowed_names": "a,b"},
                ['allowedNames "a,b" (flag --allowed-names): needs clientCAFile, and verbs served over TLS'],
                id="names without certificates",
            ),
            pytest.param(
                {**PAIR, "reader_names": "a", "operator_port": "1", "operator_tls": "false"},
                ['readerNames "a" (flag --reader-names): needs clientCAFile, and an operator listener with TLS'],
                id="readers without certificates",
            ),
            pytest.param(
                {"peer_port": "1"}, ['peerPort "1" (flag --peer-port): ' + PEERS], id="replicas without certificates"
            ),
        ],
    )
    def test_what_cannot_be(self, given: dict[str, str], said: list[str]) -> None:
        assert said == refused(given).splitlines()

    @pytest.mark.parametrize(
        ("changed", "others", "said"),
        [
            (
                {},
                {"tlsCertFile": "c", "tlsPrivateKeyFile": "k"},
                "certificates are either self-signed or read from files",
            ),
            ({}, {"cluster": "c"}, "a saved cluster has no Secrets"),
            ({}, {"tls": False}, "has no effect: no listener uses TLS"),
            ({"secretName": None}, {}, "selfSigned.secretName null"),
            ({"secretNamespace": "a/b"}, {}, "selfSigned.secretNamespace"),
            ({"dnsNames": []}, {}, "selfSigned.dnsNames"),
            ({"dnsNames": ["a", "No Name"]}, {}, "selfSigned.dnsNames[1]"),
            ({"dnsNames": ["localhost"]}, {}, "localhost does not identify a replica"),
            ({"dnsNames": ["a", f"{'b' * 64}.svc"]}, {}, "selfSigned.dnsNames[1]"),
            ({"clientName": "ä" * 33}, {}, "must have at most 64 bytes, in UTF-8"),
            ({"clientName": ""}, {}, "selfSigned.clientName"),
            ({}, {"allowedNames": ["somebody"]}, "add its clientName to allowedNames"),
            ({"clientSecretName": "homeport"}, {}, "use another Secret"),
            ({"clientName": "homeport.here.svc"}, {}, "would be accepted as a replica"),
            ({"clientDuration": "5m"}, {}, "selfSigned.clientDuration"),
            ({"clientduration": "5h"}, {}, "did you mean clientDuration?"),
        ],
    )
    def test_certificates_made_here_cannot_be(
        self, changed: dict[str, Any], others: dict[str, Any], said: str, tmp_path: Path
    ) -> None:
        fields = {"host": "0.0.0.0", "selfSigned": {**SELF_SIGNED, **changed}, **others}

        assert said in refused({}, config=config(tmp_path, **fields))

    def test_names_are_written_with_commas_or_as_a_list(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HOMEPORT_ALLOWED_NAMES", "system:kube-scheduler, spiffe://here/scheduler,")
        from_variable = load_settings(PAIR).allowed_names
        monkeypatch.delenv("HOMEPORT_ALLOWED_NAMES")
        fields = {"tlsCertFile": "c", "tlsPrivateKeyFile": "k", "clientCAFile": "a", "allowedNames": ["one", "two"]}

        assert ("system:kube-scheduler", "spiffe://here/scheduler") == from_variable
        assert ("one", "two") == load_settings({}, config=config(tmp_path, **fields)).allowed_names
