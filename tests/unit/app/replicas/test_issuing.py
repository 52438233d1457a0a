"""An authority of our own, and what it issues: known to OpenSSL as to us."""

from __future__ import annotations

import ssl
import time
from typing import Final

import pytest

from app.replicas.issuing import (
    AUTHORITY_SECONDS,
    COMMON_NAME,
    SERVING_SECONDS,
    BadPair,
    Pair,
    authority_info,
    certificate_info,
    is_issued_by,
    issue,
    new_authority,
)
from app.server.tls import Certificates, InMemoryCertificates

NOW: Final = 1_800_000_000.0
HOUR: Final = 3600.0


def test_an_authority_lives_for_ten_years_and_begins_early() -> None:
    found = authority_info(new_authority(NOW))

    assert (NOW - HOUR, NOW + AUTHORITY_SECONDS) == (found.begins, found.ends)
    assert found.common_name.startswith(COMMON_NAME)
    assert found.common_name == found.issuer


def test_no_two_have_a_name() -> None:
    """Clients look for an issuer by its name: of two with one name they would try the wrong key."""
    assert authority_info(new_authority(NOW)).common_name != authority_info(new_authority(NOW)).common_name


def test_a_leaf_has_its_names_and_is_renewed_at_two_thirds() -> None:
    authority = new_authority(NOW)
    leaf = issue(authority, "homeport", ("a.svc", "b.svc"), seconds=SERVING_SECONDS, now=NOW)
    found = certificate_info(leaf.certificates)

    assert ("homeport", ("a.svc", "b.svc"), NOW + SERVING_SECONDS) == (found.common_name, found.names, found.ends)
    due = [found.needs_renewal(NOW + SERVING_SECONDS * part) for part in (-0.1, 0.0, 0.6, 0.7, 1.1)]
    assert [True, False, False, True, True] == due
    assert is_issued_by(authority, leaf)
    assert not is_issued_by(new_authority(NOW), leaf)
    assert not is_issued_by(authority, Pair(leaf.certificates, authority.key))
    assert not is_issued_by(authority, Pair(b"", b""))


def test_nothing_outlives_its_authority() -> None:
    authority = new_authority(NOW)
    late = NOW + AUTHORITY_SECONDS - HOUR

    assert (
        NOW + AUTHORITY_SECONDS
        == certificate_info(issue(authority, "x", (), seconds=SERVING_SECONDS, now=late).certificates).ends
    )
    with pytest.raises(BadPair, match="has expired"):
        issue(authority, "x", (), seconds=SERVING_SECONDS, now=NOW + AUTHORITY_SECONDS)


def test_a_server_is_no_authority_and_a_client_no_server() -> None:
    authority = new_authority(NOW)
    server = issue(authority, "homeport", ("a.svc",), seconds=HOUR, now=NOW)

    with pytest.raises(BadPair, match="does not belong to an authority"):
        authority_info(server)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda one, _: Pair(b"", one.key), "the certificate cannot be read"),
        (lambda one, _: Pair(one.certificates[:200], one.key), "the certificate cannot be read"),
        (lambda one, _: Pair(one.certificates, b"no key"), "the key cannot be read"),
        (lambda one, other: Pair(one.certificates, other.key), "does not match the certificate"),
        (lambda one, _: Pair(b"\0" * 300_000, one.key), "too long"),
        (lambda one, _: Pair(one.certificates, b"\0" * 300_000), "too long"),
        (lambda one, _: Pair(b"\xff\xfe", b"\xff\xfe"), "cannot be read"),
    ],
)
def test_what_is_none_is_told(spoilt: object, said: str) -> None:
    one, other = new_authority(NOW), new_authority(NOW)

    with pytest.raises(BadPair, match=said):
        authority_info(spoilt(one, other))  # type: ignore[operator]


def test_what_is_issued_is_what_listeners_and_replicas_accept() -> None:
    now = time.time()
    authority = new_authority(now)
    leaf = issue(authority, "homeport", ("homeport.ns.svc", "homeport.ns.svc.cluster.local"), seconds=HOUR, now=now)
    contents = (leaf.certificates, leaf.key, authority.certificates)
    found = Certificates(InMemoryCertificates(lambda: leaf, lambda: contents), replicas=True)

    assert ("homeport.ns.svc", ssl.CERT_OPTIONAL) == (found.peer().name, found.server.verify_mode)
    assert {"serving", "authority"} == set(found.ends())
