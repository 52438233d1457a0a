"""An authority in a Secret: made, shared, renewed, taken over; and what is somebody else's is left alone."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.replicas.authority import Authority, CertificateSpec
from app.replicas.issuing import (
    AUTHORITY_SECONDS,
    SERVING_SECONDS,
    Pair,
    certificate_info,
    is_issued_by,
    issue,
    new_authority,
)
from app.server.tls import unusable
from tests.apiserver import client_of
from tests.certificates import badly_named

NOW: Final = float(int(time.time()))
"""As it is: OpenSSL looks at the same clock."""
DAY: Final = 86_400.0
ASKED: Final = CertificateSpec(
    "here",
    "authority",
    ("homeport.here.svc",),
    client_secret="client",
    client_name="homeport-scheduler",
    client_seconds=365 * DAY,
)


class SecretServer:
    """Keeps Secrets; versions are preconditions. ``denied``: status of every answer."""

    def __init__(self, **secrets: dict[str, bytes]) -> None:
        self.version = 10
        self.denied = 0
        self.writes: list[str] = []
        self.secrets: dict[str, dict[str, Any]] = {}
        for name in ("authority", "client"):
            self.put(name, secrets.get(name, {}))

    def put(self, name: str, values: dict[str, bytes]) -> None:
        self.version += 1
        data = {key: base64.b64encode(value).decode() for key, value in values.items()}
        self.secrets[name] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "resourceVersion": str(self.version), "labels": {"kept": "yes"}},
            **({"data": data} if data else {}),
        }

    def values(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.secrets[name].get("data", {}).items()}

    def pair(self, name: str, certificate: str, key: str) -> Pair:
        found = self.values(name)
        return Pair(found[certificate], found[key])

    @property
    def authority(self) -> Pair:
        return self.pair("authority", "ca.crt", "ca.key")

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        if self.denied or name not in self.secrets:
            return _status(self.denied or 404)
        found = self.secrets[name]
        if request.method == "PATCH":
            body = json.loads(request.content)
            if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                return _status(409)
            self.writes.append(name)
            self.version += 1
            found.setdefault("data", {}).update(body["data"])
            found["metadata"]["resourceVersion"] = str(self.version)
        return httpx.Response(200, json=found)


def _status(code: int) -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "code": code, "message": f"answered {code}"})


class One:
    """A replica's authority and its clock."""

    def __init__(self, server: SecretServer, asked: CertificateSpec = ASKED) -> None:
        self.now = NOW
        self.found = Authority(client_of(server), asked, unusable, clock=lambda: self.now)

    async def look(self, times: int = 1) -> bool:
        return [await self.found.look() for _ in range(times)][-1]

    @property
    def leaf(self) -> Pair:
        return Pair(*self.found.contents[:2])


async def test_it_serves_from_memory_before_anything_was_stored() -> None:
    server = SecretServer()
    server.denied = 503
    one = One(server)

    assert not await one.look()
    assert one.found.problem().startswith("certificates: ")
    assert "homeport.here.svc" in certificate_info(one.leaf.certificates).names
    assert [] == server.writes


async def test_replicas_share_the_first_that_was_stored() -> None:
    server = SecretServer()
    first, second = One(server), One(server)
    assert await first.look()
    stored = server.authority

    assert await second.look()

    assert ("", "") == (first.found.problem(), second.found.problem())
    assert stored == server.authority
    assert {"kept": "yes"} == server.secrets["authority"]["metadata"]["labels"]
    for one in (first, second):
        assert stored.certificates == one.found.contents[2]
        assert is_issued_by(stored, one.leaf)
    assert first.leaf != second.leaf


async def test_of_two_at_once_one_is_stored_and_the_other_follows() -> None:
    server = SecretServer()
    one = One(server)
    found = server.secrets["authority"]["metadata"]["resourceVersion"]
    theirs = new_authority(NOW)
    real = server.__call__

    def between(request: httpx.Request) -> httpx.Response:
        """Another replica writes between our read and our write."""
        answer = real(request)
        if request.method == "GET" and server.secrets["authority"]["metadata"]["resourceVersion"] == found:
            before = httpx.Response(200, content=answer.content)
            server.put("authority", {"ca.crt": theirs.certificates, "ca.key": theirs.key})
            return before
        return answer

    one.found = Authority(client_of(between), ASKED, unusable, clock=lambda: NOW)
    assert not await one.look()
    assert await one.look()
    assert theirs == server.authority
    assert theirs.certificates == one.found.contents[2]


async def test_the_client_s_pair_is_stored_and_left_alone_until_two_thirds() -> None:
    server = SecretServer()
    one, other = One(server), One(server)
    assert await one.look(3)
    assert await other.look(3)
    first = server.pair("client", "tls.crt", "tls.key")

    assert ["authority", "client"] == server.writes
    assert server.authority.certificates == server.values("client")["ca.crt"]
    assert "ca.key" not in server.values("client")
    assert is_issued_by(server.authority, first)
    assert "homeport-scheduler" == certificate_info(first.certificates).common_name
    assert {"client": certificate_info(first.certificates).ends} == dict(one.found.ends())

    one.now = NOW + 240 * DAY
    assert await one.look()
    assert first == server.pair("client", "tls.crt", "tls.key")
    one.now = NOW + 250 * DAY
    assert await one.look()
    second = server.pair("client", "tls.crt", "tls.key")
    assert first != second
    assert certificate_info(second.certificates).ends == one.now + 365 * DAY


async def test_leaves_are_renewed_while_the_api_server_is_away() -> None:
    server = SecretServer()
    one = One(server)
    assert await one.look()
    first, stamp = one.leaf, one.found.stamp
    server.denied = 503

    one.now = NOW + SERVING_SECONDS / 2
    assert not await one.look()
    assert (first, True) == (one.leaf, stamp is one.found.stamp)
    one.now = NOW + SERVING_SECONDS * 0.7
    assert not await one.look()
    assert first != one.leaf
    assert stamp is not one.found.stamp
    assert "" == one.found.problem()
    assert "answered 503" in one.found.trouble


async def test_a_secret_that_was_emptied_gets_back_what_there_is() -> None:
    server = SecretServer()
    one = One(server)
    assert await one.look()
    stored = server.authority
    server.put("authority", {})
    server.put("client", {})

    assert await one.look()
    assert stored == server.authority
    assert is_issued_by(stored, server.pair("client", "tls.crt", "tls.key"))


async def test_another_authority_is_taken_over_with_all_that_it_trusts() -> None:
    """The first certificate signs; the former one behind it is trusted, so that nobody is cut off."""
    server = SecretServer()
    one = One(server)
    assert await one.look()
    former, new = server.authority, new_authority(NOW + 1)
    bundle = new.certificates + former.certificates
    server.put("authority", {"ca.crt": bundle, "ca.key": new.key})

    assert await one.look()
    assert bundle == one.found.contents[2]
    assert is_issued_by(new, one.leaf)
    assert is_issued_by(new, server.pair("client", "tls.crt", "tls.key"))
    assert bundle == server.values("client")["ca.crt"]


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"ca.crt": b"somebody's", "ca.key": b"own"}, "ca.crt and ca.key cannot be used"),
        ({"ca.crt": new_authority(NOW).certificates}, "it must have both ca.crt and ca.key, or neither"),
        (
            {"ca.crt": new_authority(NOW).certificates, "ca.key": new_authority(NOW).key},
            "does not match the certificate",
        ),
        ({"ca.crt": b"\xff" * 300_000, "ca.key": b"\xff"}, "too long"),
    ],
)
async def test_what_is_not_ours_is_not_overwritten(stored: dict[str, bytes], said: str) -> None:
    server = SecretServer(authority=stored)
    one = One(server)

    assert not await one.look(2)
    assert said in one.found.problem()
    assert "here/authority" in one.found.problem()
    assert stored == server.values("authority")
    assert [] == server.writes


async def test_an_authority_that_has_expired_is_told_and_its_successor_read() -> None:
    old, new = new_authority(NOW - 2 * AUTHORITY_SECONDS), new_authority(NOW)
    server = SecretServer(authority={"ca.crt": old.certificates, "ca.key": old.key})
    one = One(server)

    assert not await one.look()
    assert "has expired" in one.found.problem()
    server.put("authority", {"ca.crt": new.certificates, "ca.key": new.key})
    assert await one.look()
    assert "" == one.found.problem()


async def test_one_that_ends_while_it_serves_is_no_reason_not_to_read_the_next() -> None:
    server = SecretServer()
    one = One(server)
    assert await one.look()
    one.now = NOW + AUTHORITY_SECONDS + DAY
    assert not await one.look(2)
    assert "certificates: Secret here/authority: the authority is outside its validity period" in one.found.problem()

    server.put("authority", {})
    assert await one.look()
    assert "" == one.found.problem()
    assert certificate_info(one.leaf.certificates).ends > one.now


def signing(authority: Pair, usage: x509.KeyUsage | None, *more: x509.ExtensionType, begins: float = NOW) -> Pair:
    """An authority with the key of another and extensions of its own."""
    key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Corporate CA")])
    start = datetime.fromtimestamp(begins, UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 4711, start, start + timedelta(days=900))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    for extension in (*([] if usage is None else [usage]), *more):
        builder = builder.add_extension(extension, critical=True)
    return Pair(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), authority.key)


@pytest.mark.parametrize("why", ["it signs no certificates", "it has names of others", "it begins tomorrow"])
async def test_an_authority_that_cannot_certify_us_is_not_taken_over(why: str) -> None:
    """A working installation goes on with what it has, and the scheduler's pair stays."""
    server = SecretServer()
    one = One(server)
    assert await one.look()
    before, pair = one.found.contents, server.values("client")
    elsewhere = x509.NameConstraints(permitted_subtrees=[x509.DNSName("example.com")], excluded_subtrees=None)
    usage = x509.KeyUsage(True, False, False, False, False, False, True, False, False)
    spoilt = {
        "it signs no certificates": lambda: signing(new_authority(NOW), usage),
        "it has names of others": lambda: signing(new_authority(NOW), None, elsewhere),
        "it begins tomorrow": lambda: signing(new_authority(NOW), None, begins=NOW + DAY),
    }[why]()
    server.put("authority", {"ca.crt": spoilt.certificates, "ca.key": spoilt.key})

    assert not await one.look()
    assert "cannot be used" in one.found.trouble
    assert ("", before, pair) == (one.found.problem(), one.found.contents, server.values("client"))


async def test_a_clock_that_was_ahead_is_got_over() -> None:
    server = SecretServer()
    early = One(server)
    early.now = NOW + 300 * DAY
    early.found = Authority(client_of(server), ASKED, lambda _: "", clock=lambda: early.now)
    early.now = NOW

    assert await early.look()
    for it in (early.leaf.certificates, server.authority.certificates, server.values("client")["tls.crt"]):
        assert certificate_info(it).begins <= NOW


async def test_at_the_end_of_an_authority_there_is_no_storm_of_leaves() -> None:
    server = SecretServer()
    one = One(server)
    assert await one.look()
    one.now = NOW + AUTHORITY_SECONDS - 1800
    assert await one.look()
    leaf, writes = one.leaf, len(server.writes)

    one.now += 60
    assert await one.look(5)
    assert (leaf, writes) == (one.leaf, len(server.writes))


async def test_a_name_that_only_openssl_reads_ends_nothing() -> None:
    pem = badly_named(datetime.fromtimestamp(NOW, UTC))
    server = SecretServer(authority={"ca.crt": pem, "ca.key": new_authority(NOW).key})
    one = One(server)

    assert not await one.look()
    assert "cannot be used" in one.found.problem()
    assert certificate_info(pem).ends > 0


@pytest.mark.parametrize("what", ["no certificate", "of another authority"])
async def test_nor_is_a_client_secret_of_somebody_else(what: str) -> None:
    theirs = signing(new_authority(NOW), None)
    pair = issue(theirs, "homeport-scheduler", (), seconds=DAY, now=NOW)
    certificate = b"no certificate" if what == "no certificate" else pair.certificates
    server = SecretServer(client={"tls.crt": certificate, "tls.key": pair.key, "ca.crt": theirs.certificates})
    one = One(server)

    assert not await one.look()
    assert "" == one.found.problem(), "replicas know each other all the same"
    assert "Secret here/client: tls.crt" in one.found.trouble
    assert ["authority"] == server.writes


@pytest.mark.parametrize("status", [403, 404])
async def test_without_rights_or_secret_it_says_so_and_goes_on(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    server = SecretServer()
    server.denied = status
    one = One(server)

    assert not await one.look(3)
    assert f"answered {status}" in one.found.problem()
    assert 1 == capsys.readouterr().out.count("certificate Secret not reconciled")
    server.denied = 0
    assert await one.look()
    assert "" == one.found.problem() == one.found.trouble


async def test_without_a_client_secret_none_is_asked_for() -> None:
    server = SecretServer()
    one = One(server, CertificateSpec("here", "authority", ("homeport.here.svc",)))

    assert await one.look()
    assert ["authority"] == server.writes
    assert {} == dict(one.found.ends())
