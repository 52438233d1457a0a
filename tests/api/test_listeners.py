"""The service behind its real listeners: who reaches what, over TLS and not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import app.main
from app.__main__ import main
from app.config.settings import Settings
from app.kube.connections import Connections, NotConnected
from app.main import HomeportService
from app.server import protocol, tls
from app.server.access import NO_CERTIFICATE, NOT_A_PEER, READS_CLOSED, WRONG_NAME
from app.server.listener import Listener
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.contract import status_breaches
from tests.api.service import SAMPLE, example
from tests.certificates import Authority
from tests.controlplane.processes import free_port
from tests.listening import running

READS: Final = ("/api/v1/status", "/api/v1/check", "/api/v1/homes", "/api/v1/waiting", "/openapi.json")
PROBES: Final = ("/livez", "/readyz", "/metrics")
WAITING: Final = "/api/v1/waiting/uid"
ACTS: Final = ("/bind", "/filter", "/lean/bind", "/api/v1/cycle", f"{WAITING}/allow", f"{WAITING}/reject")
POD: Final = {"namespace": "shop", "name": "web-7d4b9c-new01"}


class Pki:
    """An authority with a pair for the service, one for a scheduler, one for a reader; and a stranger's."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.stranger = Authority(folder, "stranger-ca").issue("stranger", "scheduler.example")
        self.server = self.authority.issue("server", "homeport.example", "127.0.0.1")
        self.scheduler = self.authority.issue("scheduler", "scheduler.example")
        self.reader = self.authority.issue("reader", "reader.example")

    @property
    def settings(self) -> dict[str, Any]:
        certificate, key = map(str, self.server)
        files = {"tls_cert_file": certificate, "tls_private_key_file": key, "client_ca_file": str(self.authority.file)}
        return {**files, "allowed_names": ("scheduler.example",)}

    def client(self, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.file)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context


@pytest.fixture
def from_afar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections come from another machine."""
    monkeypatch.setattr(protocol, "is_local_client", lambda _: False)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@asynccontextmanager
async def listening(**settings: Any) -> AsyncIterator[Mapping[str, Listener]]:
    """The service of the sample cluster on free ports; its listeners by name."""
    service = HomeportService(Settings(cluster=str(SAMPLE), port=0, **settings), SHIPPED, DEFAULT_WEIGHTS, version="1")
    web, listeners = service.listeners()
    async with running(web, listeners):
        yield {it.name: it for it in listeners}


def client(listener: Listener, context: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    scheme = "http" if context is None else "https"
    return httpx.AsyncClient(
        base_url=f"{scheme}://127.0.0.1:{listener.port}", verify=context or True, trust_env=False, timeout=10
    )


async def test_on_one_port_everything_is_answered() -> None:
    async with listening() as found, client(found["verbs"]) as http:
        for path in (*PROBES, *READS):
            assert 200 == (await http.get(path)).status_code, path
        assert ["node-b2"] == (await http.post("/filter", json=example("filter-home"))).json()["NodeNames"]
        assert 200 == (await http.post("/api/v1/cycle", json=POD)).status_code


async def test_head_is_answered_wherever_get_is() -> None:
    """With the head of that answer and no body: what is asked next on the connection is answered in turn."""
    async with listening() as found, client(found["verbs"]) as http:
        for path in (*PROBES, *READS, "/", "/docs"):
            told, whole = await http.head(path), await http.get(path)
            assert (200, b"") == (told.status_code, told.content), path
            assert set(whole.headers) == set(told.headers), path
        assert {404, 405} == {(await http.head(path)).status_code for path in ("/nothing", "/filter")}


async def test_the_first_page_tells_what_a_listener_answers() -> None:
    async with listening(operator_port=0) as found:
        async with client(found["operator"]) as http:
            told = (await http.get("/")).json()
            assert ({*PROBES, "/docs"} <= set(told["pages"]), []) == (True, told["verbs"])
        async with client(found["verbs"]) as http:
            told = (await http.get("/")).json()
            assert ({}, "/bind") == (told["pages"], told["verbs"][0])


async def test_an_operator_listener_reads_and_never_acts() -> None:
    async with listening(operator_port=0) as found:
        async with client(found["operator"]) as http:
            for path in (*PROBES, *READS):
                assert 200 == (await http.get(path)).status_code, path
            assert 200 == (await http.post("/api/v1/explain", json=POD)).status_code
            for path in ACTS:
                assert (await http.post(path, json={})).status_code in (404, 405), path
            told = (await http.get("/openapi.json")).json()["paths"]
            assert not set(told) & set(ACTS)
        async with client(found["verbs"]) as http:
            assert 200 == (await http.post("/filter", json=example("filter-home"))).status_code
            for path in (*PROBES, *READS):
                assert 404 == (await http.get(path)).status_code, path


async def test_without_a_certificate_no_verb_is_reached(pki: Pki) -> None:
    """Nor with one of another authority or another name; a verb says why in the words of its answer."""
    request = example("filter-home")
    async with listening(**pki.settings) as found:
        async with client(found["verbs"], pki.client(pki.scheduler)) as http:
            assert ["node-b2"] == (await http.post("/lean/filter", json=request)).json()["NodeNames"]
            assert 200 == (await http.get("/readyz")).status_code
        for pair, why in ((None, NO_CERTIFICATE), (pki.reader, WRONG_NAME)):
            async with client(found["verbs"], pki.client(pair)) as http:
                assert why == (await http.post("/filter", json=request)).json()["Error"]
                assert why == (await http.post("/bind", json=example("bind-spread"))).json()["Error"]
                assert (500, b"") == _told(await http.post("/preempt", json=example("preempt")))
                assert (403, why) == _message(await http.get("/api/v1/status"))
                assert (403, why) == _message(await http.post("/api/v1/cycle", json={"name": "x"}))
                assert (403, why) == _message(await http.get("/readyz"))
        async with client(found["verbs"], pki.client(pki.stranger)) as http:
            with pytest.raises(httpx.TransportError):
                await http.post("/filter", json=request)
        async with client(found["verbs"]) as http:
            with pytest.raises(httpx.TransportError):
                await http.post("/filter", json=request)


def _told(response: httpx.Response) -> tuple[int, bytes]:
    return response.status_code, response.content


def _message(response: httpx.Response) -> tuple[int, str]:
    """The message of a Status below /api/v1, and of other pages the sentence."""
    if response.url.path.startswith("/api/v1/"):
        assert [] == status_breaches(response)
        return response.status_code, response.json()["message"]
    return response.status_code, response.json()["detail"]


@pytest.mark.usefixtures("from_afar")
async def test_probes_are_open_and_pages_are_for_readers(pki: Pki) -> None:
    """The operator listener is reached from elsewhere here; kubelets and scrapers have no certificate."""
    settings = {"operator_host": "0.0.0.0", "operator_port": 0, "reader_names": ("reader.example",)}
    async with listening(**pki.settings, **settings) as found:
        for pair in (None, pki.scheduler):
            async with client(found["operator"], pki.client(pair)) as http:
                for path in PROBES:
                    assert 200 == (await http.get(path)).status_code
                for path in READS:
                    assert (403, READS_CLOSED) == _message(await http.get(path))
                assert (403, READS_CLOSED) == _message(await http.post("/api/v1/explain", json={}))
        async with client(found["operator"], pki.client(pki.reader)) as http:
            for path in READS:
                assert 200 == (await http.get(path)).status_code
        async with client(found["verbs"], pki.client(pki.reader)) as http:
            assert WRONG_NAME == (await http.post("/filter", json=example("filter-home"))).json()["Error"]


@pytest.mark.usefixtures("from_afar")
async def test_explain_asks_with_a_reader_s_certificate(pki: Pki, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"operator_host": "0.0.0.0", "operator_port": 0, "reader_names": ("reader.example",)}
    command = ["explain", "-n", "shop", "web-7d4b9c-new01", f"--certificate-authority={pki.authority.file}"]
    reader = [f"--client-certificate={pki.reader[0]}", f"--client-key={pki.reader[1]}"]
    async with listening(**pki.settings, **settings) as found:
        command.append(f"--server=https://127.0.0.1:{found['operator'].port}")
        codes = [await asyncio.to_thread(main, [*command, *more]) for more in ([], reader, ["--client-key=x"])]

    told = capsys.readouterr()
    assert [3, 0, 3] == codes
    assert "shop/web-7d4b9c-new01: 4 of 12 nodes fit\n" in told.out
    assert READS_CLOSED.removeprefix("homeport: ") in told.err


async def test_over_loopback_a_listener_for_all_reads_to_whoever_is_in_the_pod() -> None:
    """As ``kubectl port-forward`` and ``exec`` come, and by the machine's own name: a name can be anybody's."""
    settings = {"operator_host": "0.0.0.0", "operator_port": 0}
    async with listening(**settings) as found, client(found["operator"]) as http:
        for path in READS:
            assert 200 == (await http.get(path)).status_code
            assert (403, READS_CLOSED) == _message(await http.get(path, headers={"Host": "rebound.example"}))
        for path in ACTS:
            assert (await http.post(path, json={})).status_code in (404, 405), path


@pytest.mark.usefixtures("from_afar")
@pytest.mark.parametrize("opened", [True, False])
async def test_a_plain_operator_listener_reads_to_all_only_where_that_is_said(opened: bool) -> None:
    settings = {"operator_host": "0.0.0.0", "operator_port": 0, "open_reads": opened}
    async with listening(**settings) as found, client(found["operator"]) as http:
        for path in PROBES:
            assert 200 == (await http.get(path)).status_code
        for path in READS:
            assert (200 if opened else 403) == (await http.get(path)).status_code


async def test_verbs_on_loopback_and_the_hop_over_tls(pki: Pki) -> None:
    """A sidecar: its scheduler asks without TLS, other replicas with their common certificate and nobody else."""
    settings = {**pki.settings, "allowed_names": (), "tls": False, "peer_host": "127.0.0.1", "peer_port": free_port()}
    async with listening(**settings) as found:
        async with client(found["verbs"]) as http:
            assert 200 == (await http.post("/filter", json=example("filter-home"))).status_code
        for pair, why in ((None, NO_CERTIFICATE), (pki.scheduler, NOT_A_PEER), (pki.server, "")):
            async with client(found["peers"], pki.client(pair)) as http:
                assert why == (await http.post("/filter", json=example("filter-home"))).json()["Error"]
        async with client(found["peers"], pki.client(pki.server)) as http:
            for path in (*PROBES, *READS):
                assert 404 == (await http.get(path)).status_code


async def test_a_replica_speaks_to_nobody_who_took_its_address(pki: Pki) -> None:
    """The peer must have our name in a certificate of our authority, whatever else listens there by now."""
    certificate, key = map(str, pki.server)
    certificates = tls.Certificates(tls.CertificateFiles(certificate, key, str(pki.authority.file)))
    peer = certificates.peer()
    for pair, reached in ((pki.server, True), (pki.scheduler, False), (pki.stranger, False)):
        theirs = {**pki.settings, "tls_cert_file": str(pair[0]), "tls_private_key_file": str(pair[1])}
        async with listening(**theirs) as found:
            connections = Connections(f"https://127.0.0.1:{found['verbs'].port}", peer.context, peer.name)
            refused = nullcontext() if reached else pytest.raises(NotConnected)
            with refused:
                async with connections.acquire() as connection:
                    assert connection.usable
            connections.close()


async def test_new_connections_get_new_certificates_and_old_ones_live(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "CHECK_SECONDS", 0.01)
    async with listening(**pki.settings) as found, client(found["verbs"], pki.client(pki.scheduler)) as kept:
        before = await _serial(found["verbs"], pki)
        assert 200 == (await kept.get("/readyz")).status_code
        pki.authority.issue("server", "homeport.example", "127.0.0.1")
        while before == await _serial(found["verbs"], pki):  # noqa: ASYNC110  # only a handshake tells
            await asyncio.sleep(0.01)
        assert 200 == (await kept.get("/readyz")).status_code
        pki.server[1].write_bytes(b"half a key")
        await asyncio.sleep(0.05)
        assert 200 == (await kept.get("/readyz")).status_code
        assert before != await _serial(found["verbs"], pki)


async def _serial(listener: Listener, pki: Pki) -> str:
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=pki.client(pki.scheduler))
    try:
        return str(writer.get_extra_info("peercert")["serialNumber"])
    finally:
        writer.close()


@pytest.mark.parametrize("over_tls", [pytest.param(False, id="plain"), pytest.param(True, id="TLS")])
async def test_strangers_who_hold_the_operator_listener_keep_no_probe_out(
    over_tls: bool, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold every place with an idle connection, over TLS before the handshake, and come back for more."""
    most = 8
    monkeypatch.setattr(app.main, "_MOST_OPERATORS", most)
    async with listening(operator_port=0, **(pki.settings if over_tls else {})) as found:
        held = []
        for _ in range(3):
            held += [await asyncio.open_connection("127.0.0.1", found["operator"].port) for _ in range(most)]
            for path in PROBES:
                async with client(found["operator"], pki.client() if over_tls else None) as http:
                    assert 200 == (await http.get(path)).status_code, path
        for _, writer in held:
            writer.close()
