"""Certificates from files, read again when these change; what cannot be used changes nothing."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.server.tls import CertificateError, CertificateFiles, Certificates, names_in
from tests.certificates import Authority, badly_named


def certificates(authority: Authority, pair: tuple[Path, Path], *, asks: bool = True) -> Certificates:
    return Certificates(CertificateFiles(str(pair[0]), str(pair[1]), str(authority.file) if asks else None))


def test_callers_are_asked_for_a_certificate_where_there_is_an_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")

    asking, other = certificates(authority, pair), certificates(authority, pair, asks=False)

    assert ssl.CERT_OPTIONAL == asking.server.verify_mode
    assert ssl.CERT_NONE == other.server.verify_mode
    assert ssl.TLSVersion.TLSv1_2 == asking.server.minimum_version


def test_names_are_common_names_and_alternative_names() -> None:
    found = {
        "subject": ((("organizationName", "o"),), (("commonName", "system:kube-scheduler"),)),
        "subjectAltName": (("DNS", "a.example"), ("URI", "spiffe://a/b"), ("IP Address", "10.0.0.1")),
    }

    assert {"system:kube-scheduler", "a.example", "spiffe://a/b", "10.0.0.1"} == names_in(found)
    assert frozenset() == names_in({})


class TestPeers:
    """Replicas share a certificate, and know each other by it."""

    def test_they_are_asked_by_a_name_in_it(self, tmp_path: Path) -> None:
        """Not by the common name, which TLS does not look at, nor by what may be in anybody's certificate."""
        authority = Authority(tmp_path)
        names = ("127.0.0.1", "localhost", "*.ns.svc", "homeport.ns.svc", "a@b.example")
        found = certificates(authority, authority.issue("server", *names, common_name="homeport"))

        assert "homeport.ns.svc" == found.peer().name
        assert {"homeport.ns.svc"} == found.names

    @pytest.mark.parametrize("why", ["another authority", "no host name", "localhost", "no authority"])
    def test_what_they_would_not_accept_is_an_error(self, tmp_path: Path, why: str) -> None:
        authority = Authority(tmp_path)
        issuer = Authority(tmp_path, "other") if why == "another authority" else authority
        pair = issuer.issue("server", {"no host name": "a@b.example", "localhost": "localhost"}.get(why, "homeport"))
        found = certificates(authority, pair, asks=why != "no authority")

        with pytest.raises(CertificateError, match="replicas verify each other by this certificate"):
            found.peer()


def test_an_authority_with_a_name_that_only_openssl_reads_is_taken(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", "homeport")
    authority.file.write_bytes(badly_named(datetime.now(UTC)) + authority.file.read_bytes())

    found = certificates(authority, pair)

    assert "homeport" == found.peer().name
    assert {"serving", "authority"} == set(found.ends())


class TestChanges:
    async def test_a_new_pair_is_for_new_connections(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        found = certificates(authority, authority.issue("server", "before"))
        server, peer = found.server, found.peer()

        assert not await found.reread()
        assert found.server is server
        assert found.peer() is peer

        authority.issue("server", "after")
        assert await found.reread()
        assert found.server is not server
        assert (frozenset({"after"}), "after") == (found.names, found.peer().name)

    async def test_another_authority_replaces_the_one_before(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        found = certificates(authority, authority.issue("server"))
        Authority(tmp_path)

        assert await found.reread()
        assert frozenset() == found.names
        with pytest.raises(CertificateError):
            found.peer()

    async def test_with_replicas_only_if_it_is_one_of_theirs(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        pair = authority.issue("server", "homeport")
        found = Certificates(CertificateFiles(str(pair[0]), str(pair[1]), str(authority.file)), replicas=True)
        peer = found.peer()
        Authority(tmp_path)

        assert not await found.reread()
        assert found.peer() is peer

    @pytest.mark.parametrize(
        "spoil",
        [
            pytest.param(lambda certificate, _: certificate.write_bytes(b""), id="an empty certificate"),
            pytest.param(
                lambda certificate, _: certificate.write_bytes(certificate.read_bytes()[:300]), id="half a certificate"
            ),
            pytest.param(lambda _, key: key.write_bytes(b"no key"), id="no key"),
            pytest.param(lambda _, key: key.unlink(), id="a key that is gone"),
            pytest.param(
                lambda certificate, _: certificate.write_bytes(
                    Authority(certificate.parent, "x").issue("y")[0].read_bytes()
                ),
                id="a certificate whose key has not come yet",
            ),
        ],
    )
    async def test_what_cannot_be_used_changes_nothing(
        self, tmp_path: Path, spoil: object, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It is said once, and what follows is taken."""
        authority = Authority(tmp_path)
        pair = authority.issue("server", "before")
        found = certificates(authority, pair)
        server = found.server

        spoil(*pair)  # type: ignore[operator]
        assert [False, False] == [await found.reread() for _ in range(2)]
        assert found.server is server
        assert 1 == capsys.readouterr().out.count("the former ones stay in use")

        authority.issue("server", "after")
        assert await found.reread()
        assert {"after"} == found.names

    @pytest.mark.parametrize("missing", ["server.crt", "server.key", "ca.crt"])
    def test_at_the_start_there_is_nothing_to_keep(self, tmp_path: Path, missing: str) -> None:
        authority = Authority(tmp_path)
        pair = authority.issue("server")
        (tmp_path / missing).unlink()

        with pytest.raises(CertificateError, match=f"{missing}: No such file"):
            certificates(authority, pair)
