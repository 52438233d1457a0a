import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trustme
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.kube import credentials as module
from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.credential_sources import CredentialsError, Kubeconfig, ServiceAccount
from app.kube.credentials import Credentials, Login, load, namespace_in_use


def self_signed(name: str) -> tuple[str, str]:
    """Certificate and key, PEM, good for 127.0.0.1 and api.test, and an authority of its own."""
    key, of, now = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name.from_rfc4514_string(f"CN={name}"),
        datetime.now(UTC),
    )
    builder = x509.CertificateBuilder(of, of, key.public_key(), 1, now - timedelta(1), now + timedelta(900))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("api.test")])
    made = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem).decode(), secret.decode()


CERTIFICATE, KEY = self_signed("test-1")
OTHER_CERTIFICATE, OTHER_KEY = self_signed("test-2")
Json: TypeAlias = dict[str, Any]
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
START = 1_800_000_000.0

PLUGIN = """#!{python} -ISs
import json, os, sys, pathlib
calls = pathlib.Path({folder!r}, "calls")
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
status = json.loads(pathlib.Path({folder!r}, "status").read_text())
if not status:
    sys.exit("the door is closed")
token = status.get("token", "")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status["token"] = token.format(len(calls.read_text()), *sys.argv[1:], os.environ.get("MOOD", ""))
if not token:
    del status["token"]
print(json.dumps(dict(apiVersion=info["apiVersion"], kind="ExecCredential", status=status)))
"""


class Now:
    """The time of day, set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of whoever runs the tests."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def kubeconfig(folder: Path, user: Json | None, cluster: Json | None = None, name: str = "config") -> str:
    """Write a kubeconfig; returns its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "it", **({"user": "me"} if user is not None else {})}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://api.test:6443", **(cluster or {})}}],
        "users": [{"name": "me", "user": user}] if user is not None else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(yaml.safe_dump(config))
    return str(folder / name)


def plugin(folder: Path, status: Json | None, api_version: str = V1) -> Json:
    """An exec entry whose plugin answers with ``status`` and counts its calls in a file."""
    program = folder / "plugin"
    program.write_text(PLUGIN.format(python=sys.executable, folder=str(folder)))
    program.chmod(0o755)
    answers(folder, status)
    env = [{"name": "MOOD", "value": "sunny"}]
    # Relative to the kubeconfig, as kubectl has it.
    return {"exec": {"apiVersion": api_version, "command": "./plugin", "args": ["one", "two"], "env": env}}


def answers(folder: Path, status: Json | None) -> None:
    (folder / "status").write_text(json.dumps(status))


def calls(folder: Path) -> int:
    counted = folder / "calls"
    return len(counted.read_text()) if counted.exists() else 0


def at(seconds: float) -> str:
    """A timestamp that many seconds after the start."""
    return datetime.fromtimestamp(START + seconds, UTC).isoformat().replace("+00:00", "Z")


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def by_plugin(folder: Path, now: Now, status: Json) -> Credentials:
    return Credentials(Kubeconfig(kubeconfig(folder, plugin(folder, status))), now=now)


async def authorization(source: str, now: Now | None = None) -> str:
    return (await Credentials(Kubeconfig(source), now=now or Now()).access()).authorization


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({"token": "abc"}, "Bearer abc", id="a token"),
        pytest.param({"tokenFile": "token"}, "Bearer from a file", id="a token file beside the kubeconfig"),
        pytest.param({"username": "me", "password": "pw"}, "Basic bWU6cHc=", id="name and password"),
        pytest.param(None, "", id="no user"),
        pytest.param(
            {"token": "abc", "exec": {"apiVersion": V1, "command": "no-such-plugin"}},
            "Bearer abc",
            id="a token makes a plugin unnecessary",
        ),
    ],
)
async def test_authorization(user: Json | None, expected: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")

    assert expected == await authorization(kubeconfig(tmp_path, user))


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
async def test_an_exec_plugin_gets_its_arguments_and_its_environment(api_version: str, tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "{}-{}-{}-{}"}, api_version)

    assert "Bearer 1-one-two-sunny" == await authorization(kubeconfig(tmp_path, user))


async def test_a_plugin_runs_again_shortly_before_its_token_expires(now: Now, tmp_path: Path) -> None:
    found = by_plugin(tmp_path, now, {"token": "{}", "expirationTimestamp": at(1000)})
    seen = []
    for seconds in (0, 1, 899, 901, 902):
        now.now = START + seconds
        if seconds > 899:
            answers(tmp_path, {"token": "{}", "expirationTimestamp": at(2000)})
        seen.append((await found.access()).authorization)

    assert ["Bearer 1", "Bearer 1", "Bearer 1", "Bearer 2", "Bearer 2"] == seen


@pytest.mark.parametrize(
    ("status", "pause"),
    [
        pytest.param({"token": "{}"}, 100_000, id="one that does not expire"),
        pytest.param({"token": "{}", "expirationTimestamp": at(-9)}, 0, id="one that comes expired"),
    ],
)
async def test_a_plugin_does_not_run_for_each_request(status: Json, pause: float, now: Now, tmp_path: Path) -> None:
    found = by_plugin(tmp_path, now, status)
    for _ in range(3):
        await found.access()
        now.now += pause

    assert 1 == calls(tmp_path)


async def test_many_requests_at_once_run_a_plugin_once(now: Now, tmp_path: Path) -> None:
    found = by_plugin(tmp_path, now, {"token": "{}"})
    first = await asyncio.gather(*(found.access() for _ in range(20)))
    now.now += 60
    second = await asyncio.gather(*(found.renewed(access) for access in first))

    assert {"Bearer 1"} == {access.authorization for access in first}
    assert {"Bearer 2"} == {access.authorization for access in second}
    assert 2 == calls(tmp_path)


async def test_a_refusal_right_after_renewal_does_not_run_a_plugin_again(now: Now, tmp_path: Path) -> None:
    found = by_plugin(tmp_path, now, {"token": "{}"})
    access = await found.access()
    now.now += 2

    assert access is await found.renewed(access)
    assert 1 == calls(tmp_path)


async def test_a_plugin_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await authorization(kubeconfig(tmp_path, plugin(tmp_path, {"token": "{}"})))
    task.cancel()

    assert turns > 10


async def test_a_token_file_is_read_again_each_minute(now: Now, tmp_path: Path) -> None:
    token = tmp_path / "token"
    found = Credentials(Kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"})), now=now)
    seen = []
    for seconds in (0, 59, 61):
        now.now = START + seconds
        token.write_text(f"token-{seconds}")
        seen.append((await found.access()).authorization)

    assert ["Bearer token-0", "Bearer token-0", "Bearer token-61"] == seen


async def test_what_was_read_last_stays_good_while_its_file_is_missing(now: Now, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("kept")
    found = Credentials(Kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"})), now=now)
    first = await found.access()
    token.unlink()
    now.now += 100

    assert first is await found.access()


async def test_an_expired_token_is_not_used_though_its_plugin_fails(now: Now, tmp_path: Path) -> None:
    found = by_plugin(tmp_path, now, {"token": "{}", "expirationTimestamp": at(100)})
    first = await found.access()
    answers(tmp_path, None)

    now.now += 95
    assert first is await found.access()
    now.now += 10
    with pytest.raises(CredentialsError, match="the door is closed"):
        await found.access()


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The service account of a pod."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("of the pod\n")
    (folder / "ca.crt").write_text(CERTIFICATE)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


async def test_in_a_pod(pod: Path, now: Now) -> None:
    """kubelet replaces token and authority while we run."""
    found = Credentials(ServiceAccount(pod), now=now)
    first = await found.access()
    now.now += 61
    (pod / "token").write_text("another")
    second = await found.access()
    now.now += 61
    (pod / "ca.crt").write_text(OTHER_CERTIFICATE)
    third = await found.access()

    assert "https://[fd00::1]:443" == first.server
    assert ["bearer of the pod", "bearer another", "bearer another"] == [
        access.authorization for access in (first, second, third)
    ]
    assert (True, False) == (second.tls is first.tls, third.tls is second.tls)
    assert ["test-1", "test-2"] == [_authority(access.tls) for access in (first, third)]


def _authority(context: ssl.SSLContext) -> str:
    (found,) = context.get_ca_certs()
    return str(dict(part[0] for part in found["subject"])["commonName"])  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "in_environment", "in_a_pod", "expected"),
    [
        pytest.param("given", "set", True, "Bearer given", id="the file given goes first"),
        pytest.param(None, "set", True, "Bearer set", id="then $KUBECONFIG"),
        pytest.param(None, None, True, "bearer of the pod", id="then the service account"),
        pytest.param(None, None, False, "Bearer home", id="then ~/.kube/config"),
    ],
)
async def test_where_credentials_are_looked_for(
    given: str | None,
    in_environment: str | None,
    in_a_pod: bool,
    expected: str,
    pod: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {name: kubeconfig(tmp_path, {"token": name}, name=name) for name in ("given", "set")}
    kubeconfig(tmp_path / "home" / ".kube", {"token": "home"})
    if in_environment:
        monkeypatch.setenv("KUBECONFIG", files[in_environment])
    if not in_a_pod:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")

    found = load(files[given] if given else None, service_account=pod)

    assert expected == (await found.access()).authorization


async def test_a_list_of_kubeconfigs_is_joined(tmp_path: Path) -> None:
    """Files of the list that are not there do not matter; the first one to say something wins."""
    first, second = kubeconfig(tmp_path, {"token": "1"}, name="1"), kubeconfig(tmp_path, {"token": "2"}, name="2")

    assert "Bearer 1" == await authorization(f"{tmp_path}/none:{first}:{second}")


async def test_what_else_a_cluster_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment is not for us."""
    monkeypatch.setenv("HTTPS_PROXY", "http://other:3128")
    cluster = {"tls-server-name": "api.test", "proxy-url": "http://proxy:3128", "insecure-skip-tls-verify": True}
    access = await Credentials(Kubeconfig(kubeconfig(tmp_path, {"token": "t"}, cluster))).access()
    bare = await Credentials(Kubeconfig(kubeconfig(tmp_path, {"token": "t"}))).access()

    assert "" == bare.proxy
    assert ("https://api.test:6443", "api.test", "http://proxy:3128", ssl.CERT_NONE) == (
        access.server,
        access.tls_server_name,
        access.proxy,
        access.tls.verify_mode,
    )


def written(folder: Path, text: str | Callable[[Json], object]) -> str:
    """Path of a kubeconfig: of this text, or changed by a function; of none if the text is empty."""
    file = Path(kubeconfig(folder, {"token": "t"}))
    if callable(text):
        config = yaml.safe_load(file.read_text())
        text(config)
        text = yaml.safe_dump(config)
    file.write_text(text)
    return str(file) if text else str(folder / "none")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "/none: there is no such file", id="no file"),
        pytest.param("a: [", "/config: while parsing", id="not YAML"),
        pytest.param("[]", "/config: ", id="a list"),
        pytest.param(
            lambda config: config.update({"current-context": "there"}),
            "/config: Invalid kube-config file. Expected object with name there in ",
            id="no such context",
        ),
        pytest.param(
            lambda config: config["users"].clear(),
            "/config, context here, user me: Invalid kube-config file. Expected object with name me in ",
            id="no such user",
        ),
        pytest.param(
            lambda config: config["clusters"][0]["cluster"].update(server="api.test:6443"),
            "/config, context here, user me: cluster it has no valid server URL",
            id="a server without a scheme",
        ),
        pytest.param(
            lambda config: config["clusters"][0]["cluster"].update(server="HTTPS://api.test"),
            "/config, context here, user me: cluster it has no valid server URL",
            id="a server with a scheme in upper case",
        ),
        pytest.param(
            lambda config: config["clusters"][0]["cluster"].update(server="https://api.test:99999"),
            "/config, context here, user me: cluster it has no valid server URL",
            id="a server with an invalid port",
        ),
        pytest.param("[" * 3000, "/config: maximum recursion depth exceeded", id="nested too deeply"),
    ],
)
def test_mistakes_that_show_at_once(text: str | Callable[[Json], object], expected: str, tmp_path: Path) -> None:
    with pytest.raises(CredentialsError) as raised:
        load(written(tmp_path, text))

    assert str(raised.value).startswith(f"kubeconfig {tmp_path}{expected}")


@pytest.mark.parametrize(
    ("user", "cluster", "expected"),
    [
        pytest.param(
            {}, {"certificate-authority": "ca.crt"}, "certificate-authority: there is no file {}/ca.crt", id="CA"
        ),
        pytest.param(
            {"client-certificate": "a", "client-key": "b"},
            {"certificate-authority": "c"},
            "certificate-authority: there is no file {0}/c; client-certificate: there is no file {0}/a; "
            "client-key: there is no file {0}/b",
            id="all of them at once",
        ),
        pytest.param(
            {"exec": {"apiVersion": V1, "command": "no-such-plugin", "installHint": "get it\nthere"}},
            {},
            "exec: there is no no-such-plugin in PATH: get it there",
            id="a plugin, looked for in PATH",
        ),
        pytest.param(
            {"exec": {"apiVersion": V1, "command": "bin/plugin"}},
            {},
            "exec: there is no executable file {}/bin/plugin",
            id="a plugin, looked for beside the kubeconfig",
        ),
        pytest.param(
            {"exec": {"apiVersion": V1, "command": "./config"}},
            {},
            "exec: there is no executable file {}/config",
            id="a plugin that is no executable",
        ),
    ],
)
def test_files_that_are_named_must_be_there(user: Json, cluster: Json, expected: str, tmp_path: Path) -> None:
    with pytest.raises(CredentialsError) as raised:
        load(kubeconfig(tmp_path, user, cluster))

    said = expected.replace("{0}", str(tmp_path)).replace("{}", str(tmp_path))
    assert f"kubeconfig {tmp_path}/config, context here, user me: {said}" == str(raised.value)


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        pytest.param({}, {"certificate-authority": "none", "certificate-authority-data": b64("x")}, id="given as data"),
        pytest.param({"exec": {"apiVersion": V1, "command": "sh"}}, {}, id="found in PATH"),
        pytest.param({}, {"server": "http://api.test", "certificate-authority": "none"}, id="without TLS"),
    ],
)
def test_files_that_nobody_reads_may_be_missing(user: Json, cluster: Json, tmp_path: Path) -> None:
    found = load(kubeconfig(tmp_path, user, cluster))

    assert f"kubeconfig {tmp_path}/config, context here, user me" == found.server


async def test_a_plugin_beside_the_kubeconfig_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    user = plugin(tmp_path / "home", {"token": "t"})
    user["exec"]["command"] = f"./{Path(user['exec']['command']).name}"
    path = kubeconfig(tmp_path / "home", user)
    monkeypatch.chdir(tmp_path)

    assert "Bearer t" == (await load(path).access()).authorization


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({"tokenFile": "none"}, "No such file or directory", id="no token file"),
        pytest.param({"client-certificate-data": "?", "client-key-data": "?"}, "", id="not base64"),
        pytest.param({"client-certificate-data": b64("?"), "client-key-data": b64("?")}, "[SSL]", id="no certificate"),
        pytest.param({"exec": {"command": "sh"}}, "apiVersion", id="an incomplete plugin entry"),
    ],
)
async def test_mistakes_that_show_when_used(user: Json, expected: str, tmp_path: Path) -> None:
    found = load(kubeconfig(tmp_path, user))

    with pytest.raises(CredentialsError) as raised:
        await found.access()

    where = f"kubeconfig {tmp_path}/config, context here, user me: "
    assert (True, True) == (str(raised.value).startswith(where), expected in str(raised.value))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(None, "exec: process returned 1. the door is closed", id="the plugin fails"),
        pytest.param({"a": 1}, "exec: the plugin answered with neither a token nor", id="neither"),
        pytest.param({"clientCertificateData": "x"}, "exec: the plugin answered with neither", id="no key"),
    ],
)
async def test_mistakes_of_a_plugin(status: Json | None, expected: str, tmp_path: Path) -> None:
    found = load(kubeconfig(tmp_path, plugin(tmp_path, status)))

    with pytest.raises(CredentialsError) as raised:
        await found.access()

    assert f"kubeconfig {tmp_path}/config, context here, user me: {expected}" in str(raised.value)


async def test_a_plugin_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PLUGIN_SECONDS", 0.01)
    (tmp_path / "plugin").write_text("#!/bin/sh\nexec sleep 0.05\n")
    (tmp_path / "plugin").chmod(0o755)
    user = {"exec": {"apiVersion": V1, "command": "./plugin"}}

    with pytest.raises(CredentialsError, match="no answer within"):
        await Credentials(Kubeconfig(kubeconfig(tmp_path, user))).access()


@asynccontextmanager
async def api_server(folder: Path, peers: list[str], authority: str) -> AsyncIterator[str]:
    """A TLS server on loopback that asks for a certificate of ``authority`` and notes whose it was."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        peer = writer.get_extra_info("peercert")
        peers.append(dict(part[0] for part in peer["subject"])["commonName"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        await reader.read()
        writer.close()

    for name, content in (("server.crt", CERTIFICATE), ("server.key", KEY)):
        (folder / name).write_text(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("form", ["files", "inline", "plugin"])
async def test_a_client_certificate_is_shown_to_the_api_server(form: str, tmp_path: Path) -> None:
    (tmp_path / "me.crt").write_text(CERTIFICATE)
    (tmp_path / "me.key").write_text(KEY)
    inline = {"certificate-authority-data": b64(CERTIFICATE)}
    cluster, user = {
        "files": ({"certificate-authority": "me.crt"}, {"client-certificate": "me.crt", "client-key": "me.key"}),
        "inline": (inline, {"client-certificate-data": b64(CERTIFICATE), "client-key-data": b64(KEY)}),
        "plugin": (inline, plugin(tmp_path, {"clientCertificateData": CERTIFICATE, "clientKeyData": KEY})),
    }[form]
    peers: list[str] = []
    async with api_server(tmp_path, peers, CERTIFICATE) as server:
        config = kubeconfig(tmp_path, user, {"server": server, **cluster})
        async with KubeClient(load(config)) as client:
            assert b"{}" == await client.get(NODES, "", "a")

    assert ["test-1"] == peers


async def test_a_certificate_that_changes_is_shown_from_then_on(now: Now, tmp_path: Path) -> None:
    """Connections made with the old one are not used again."""

    def certificate(which: str, key: str) -> None:
        (tmp_path / "me.crt").write_text(which)
        (tmp_path / "me.key").write_text(key)

    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    peers: list[str] = []
    async with api_server(tmp_path, peers, CERTIFICATE + OTHER_CERTIFICATE) as server:
        certificate(CERTIFICATE, KEY)
        config = kubeconfig(tmp_path, user, {"server": server, "certificate-authority": "ca.crt"})
        async with KubeClient(Credentials(Kubeconfig(config), now=now)) as client:
            await client.get(NODES, "", "a")
            certificate(OTHER_CERTIFICATE, OTHER_KEY)
            now.now += 61
            await client.get(NODES, "", "a")

    assert ["test-1", "test-2"] == peers


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    load(kubeconfig(tmp_path, plugin(tmp_path, {"token": "{}"})))

    assert 0 == calls(tmp_path)


class TestCertificateEnds:
    """When the client certificate in use ends; whoever rotates kubeconfigs wants to see that it was done."""

    @pytest.mark.parametrize("authority", [True, False], ids=["with an authority", "without"])
    async def test_of_a_file_as_it_was_read_last(self, authority: bool, now: Now, tmp_path: Path) -> None:
        old, new = trustme.CA(), trustme.CA()
        pairs = [
            old.issue_cert("me.example", not_after=datetime(2031, 1, 1, tzinfo=UTC)),
            new.issue_cert("me.example", not_after=datetime(2032, 1, 1, tzinfo=UTC)),
        ]
        (tmp_path / "ca.crt").write_text(CERTIFICATE)
        cluster = {"certificate-authority": "ca.crt"} if authority else {}
        config = kubeconfig(tmp_path, {"client-certificate": "me.crt", "client-key": "me.key"}, cluster)
        credentials = Credentials(Kubeconfig(config), now=now)
        assert credentials.certificate_ends is None

        found: list[float | None] = []
        for pair in pairs:
            (tmp_path / "me.crt").write_bytes(b"".join(it.bytes() for it in pair.cert_chain_pems))
            (tmp_path / "me.key").write_bytes(pair.private_key_pem.bytes())
            await credentials.access()
            found.append(credentials.certificate_ends)
            now.now += 61

        assert [datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2031, 2032)] == found

    async def test_only_of_one_that_nobody_renews(self, tmp_path: Path) -> None:
        data = {"client-certificate-data": b64(CERTIFICATE), "client-key-data": b64(KEY)}
        renewed = plugin(tmp_path, {"clientCertificateData": CERTIFICATE, "clientKeyData": KEY})
        found: list[float | None] = []
        for user in (data, {"token": "t"}, renewed):
            config = kubeconfig(tmp_path, user, {"certificate-authority-data": b64(CERTIFICATE)})
            credentials = load(config)
            await credentials.access()
            found.append(credentials.certificate_ends)

        ends = x509.load_pem_x509_certificate(CERTIFICATE.encode()).not_valid_after_utc.timestamp()
        assert [ends, None, None] == found


async def test_a_rejection_names_a_certificate_that_expired(now: Now, tmp_path: Path) -> None:
    pair = trustme.CA().issue_cert("me.example", not_after=datetime(2031, 2, 3, 4, 5, tzinfo=UTC))
    key = {"client-key-data": b64(pair.private_key_pem.bytes().decode())}
    user = {"client-certificate-data": b64(pair.cert_chain_pems[0].bytes().decode()), **key}
    credentials = Credentials(Kubeconfig(kubeconfig(tmp_path, user)), now=now)
    await credentials.access()

    before = credentials.rejection("Unauthorized")
    now.now = datetime(2031, 2, 4, tzinfo=UTC).timestamp()

    head = "the API server (https://api.test:6443) rejects the credentials: "
    assert f"{head}Unauthorized" == before
    assert f"{head}the client certificate expired on 2031-02-03 04:05 UTC" == credentials.rejection("Unauthorized")


class TestLogin:
    """Credentials by kubectl's flags."""

    @staticmethod
    def config(folder: Path) -> str:
        contexts = [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}
            for name in ("one", "two")
        ]
        found = {
            "current-context": "one",
            "contexts": contexts,
            "clusters": [{"name": it, "cluster": {"server": f"https://{it}.test"}} for it in ("one", "two")],
            "users": [{"name": it, "user": {"token": it}} for it in ("one", "two")],
        }
        (folder / "config").write_text(yaml.safe_dump(found))
        return str(folder / "config")

    @pytest.mark.parametrize(("context", "name"), [("", "one"), ("one", "one"), ("two", "two")])
    async def test_of_a_context(self, context: str, name: str, tmp_path: Path) -> None:
        login = Login(self.config(tmp_path), context)
        access = await login.credentials().access()

        assert (f"https://{name}.test", f"Bearer {name}", "") == (
            access.server,
            access.authorization,
            access.impersonated,
        )
        assert f"of-{name}" == login.namespace()

    async def test_of_another_user(self, tmp_path: Path) -> None:
        assert "ann" == (await Login(self.config(tmp_path), impersonated="ann").credentials().access()).impersonated

    def test_a_context_that_does_not_exist(self, tmp_path: Path) -> None:
        login = Login(self.config(tmp_path), "three")

        for ask in (login.credentials, login.namespace):
            with pytest.raises(CredentialsError, match=r"^kubeconfig .*/config: .*three"):
                ask()

    def test_a_context_is_not_of_a_service_account(self, pod: Path) -> None:
        """In a pod, a context by its name means the kubeconfig of the person."""
        with pytest.raises(CredentialsError, match=r"^kubeconfig ~/.kube/config: there is no such file$"):
            load(context="one", service_account=pod)


class TestNamespaceInUse:
    """As kubectl finds it."""

    @staticmethod
    def config(folder: Path, **context: str) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        found = {"current-context": "here", "contexts": [{"name": "here", "context": context}]}
        (folder / "config").write_text(yaml.safe_dump(found))
        return str(folder / "config")

    @staticmethod
    def pod(folder: Path, namespace: str | None) -> Path:
        folder.mkdir()
        (folder / "token").write_text("t")
        if namespace is not None:
            (folder / "namespace").write_text(namespace)
        return folder

    def test_of_the_current_context(self, tmp_path: Path) -> None:
        """Neither cluster nor user is needed for it."""
        assert "machines" == namespace_in_use(self.config(tmp_path, namespace="machines"))

    def test_of_the_first_file_that_says_which_is_current(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = (self.config(tmp_path / "a", namespace="machines"), self.config(tmp_path / "b", namespace="shop"))
        monkeypatch.setenv("KUBECONFIG", ":".join(files))

        assert ("machines", "shop") == (namespace_in_use(), namespace_in_use(files[1]))

    def test_of_the_persons_own_file_or_of_the_pod(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config(tmp_path / "home" / ".kube", namespace="machines")
        assert "machines" == namespace_in_use()
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")

        assert "scheduling" == namespace_in_use(service_account=self.pod(tmp_path / "pod", "scheduling\n"))
        assert "default" == namespace_in_use(service_account=self.pod(tmp_path / "bare", None))
        asked = self.config(tmp_path, namespace="shop")
        assert "shop" == namespace_in_use(asked, service_account=tmp_path / "pod")

    def test_where_nothing_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "bare").write_text("{}")

        assert "default" == namespace_in_use()
        assert ["default"] * 2 == [namespace_in_use(self.config(tmp_path)), namespace_in_use(str(tmp_path / "bare"))]
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
        assert "default" == namespace_in_use()

    @pytest.mark.parametrize(
        ("text", "told"), [("", "none: there is no such file"), ("current-context: x", "config: ")]
    )
    def test_what_cannot_be_read_is_named(self, text: str, told: str, tmp_path: Path) -> None:
        with pytest.raises(CredentialsError) as raised:
            namespace_in_use(written(tmp_path, text))

        assert str(raised.value).startswith(f"kubeconfig {tmp_path}/{told}")
