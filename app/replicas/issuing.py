"""An authority of our own, and what it issues: P-256 pairs in PEM. Nothing here talks to anybody.

The authority lives for ten years, since kube-scheduler never reads it again; what it issues lives for a short while,
since kube-scheduler and kubelets read that again at each handshake. Each begins an hour early: clocks differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Final, ParamSpec, TypeAlias, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

P = ParamSpec("P")
R = TypeVar("R")

AUTHORITY_SECONDS: Final = 10 * 365 * 86_400.0
SERVING_SECONDS: Final = 7 * 86_400.0
_EARLY_SECONDS: Final = 3600.0
_RENEWED_AFTER: Final = 2 / 3
"""Of its life, after which a pair is replaced: the rest is for whoever could not be reached meanwhile."""

COMMON_NAME: Final = "homeport authority"
"""Begins the common name of every authority made here; a part of its serial number follows."""

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

_LARGEST: Final = 256 << 10
"""Bytes of PEM that are looked at; more cannot be a pair and a few authorities."""


PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
"""Ours are the first; an authority that was put in the place of ours may have the second."""


class BadPair(ValueError):
    """What is no certificate with its key; says why."""


class Pair(Struct, frozen=True):
    """PEM: a certificate, more behind it where there are, and the key of the first."""

    certificates: bytes
    key: bytes


class Known(Struct, frozen=True):
    """What is to be known of a certificate. Times are seconds since the epoch."""

    common_name: str
    issuer: str
    begins: float
    ends: float
    names: tuple[str, ...]

    def is_due(self, now: float) -> bool:
        """Whether one that was issued here is to be replaced: also where the clock was ahead when it was."""
        issued = self.begins + _EARLY_SECONDS
        return not self.begins <= now < issued + (self.ends - issued) * _RENEWED_AFTER


def _told_as_bad_pairs(function: Callable[P, R]) -> Callable[P, R]:
    """What the library says of bad input in a dozen ways."""

    @wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BadPair:
            raise
        except _UNREADABLE as error:
            raise BadPair(f"the certificate cannot be read: {_line(error)}") from None

    return told


def new_authority(now: float) -> Pair:
    """One that signs certificates and nothing else, and no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"{COMMON_NAME} {serial:x}"[: len(COMMON_NAME) + 9])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, key.public_key(), serial, now, now + AUTHORITY_SECONDS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _signed(builder.add_extension(usage, critical=True), key, key)


@_told_as_bad_pairs
def issue(authority: Pair, common_name: str, names: Sequence[str], *, seconds: float, now: float) -> Pair:
    """A pair for clients, and with DNS ``names`` for servers too. It ends with the authority at the latest.

    Raises ``BadPair`` for an authority that is none.
    """
    issuer, issuer_key = _read(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + seconds, issuer.not_valid_after_utc.timestamp())
    if ends <= now:
        raise BadPair("the authority has expired")
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    serial = x509.random_serial_number()
    builder = _builder(_name(common_name), issuer.subject, key.public_key(), serial, now, ends)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(above, critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
    return _signed(builder, key, issuer_key)


@_told_as_bad_pairs
def known(certificates: bytes) -> Known:
    """Of the first certificate. Raises ``BadPair``."""
    return _known(_first(certificates))


@_told_as_bad_pairs
def known_authority(authority: Pair) -> Known:
    """Raises ``BadPair`` where its certificate is that of no authority, or its key belongs to another."""
    certificate, _ = _read(authority)
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        raise BadPair("the certificate is that of no authority") from None
    if not found.ca:
        raise BadPair("the certificate is that of no authority")
    return _known(certificate)


def is_issued_by(authority: Pair, pair: Pair) -> bool:
    """Whether it is a certificate with its key that this authority signed."""
    try:
        issuer, _ = _read(authority)
        certificate, _ = _read(pair)
    except BadPair:
        return False
    return _signed_by(issuer, certificate)


def is_of_any(authorities: bytes, certificates: bytes) -> bool:
    """Whether one of several authorities signed a certificate."""
    try:
        certificate = _first(certificates)
        return any(_signed_by(it, certificate) for it in x509.load_pem_x509_certificates(authorities))
    except _UNREADABLE:
        return False


def _signed_by(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (*_UNREADABLE, InvalidSignature):
        return False
    return True


def _read(pair: Pair) -> tuple[x509.Certificate, PrivateKey]:
    certificate = _first(pair.certificates)
    if len(pair.key) > _LARGEST:
        raise BadPair("the key is too long")
    try:
        key = serialization.load_pem_private_key(pair.key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadPair(f"the key cannot be read: {_line(error)}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise BadPair("the key is neither one of an elliptic curve nor of RSA")
    if certificate.public_key() != key.public_key():
        raise BadPair("the key is not that of the certificate")
    return certificate, key


def _first(certificates: bytes) -> x509.Certificate:
    if len(certificates) > _LARGEST:
        raise BadPair("the certificate is too long")
    try:
        return x509.load_pem_x509_certificates(certificates)[0]
    except _UNREADABLE as error:
        raise BadPair(f"the certificate cannot be read: {_line(error)}") from None


def _known(certificate: x509.Certificate) -> Known:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(found.get_values_for_type(x509.DNSName))
    except (x509.ExtensionNotFound, *_UNREADABLE):
        names = ()
    begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    subject, issuer = _common_name(lambda: certificate.subject), _common_name(lambda: certificate.issuer)
    return Known(subject, issuer, begins, ends, names)


def _common_name(name: Callable[[], x509.Name]) -> str:
    """Empty where there is none, and where it is written as nobody does any more."""
    try:
        return next((str(it.value) for it in name().get_attributes_for_oid(NameOID.COMMON_NAME)), "")
    except _UNREADABLE:
        return ""


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, serial: int, now: float, ends: float
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key, serial_number=serial)
    begins = datetime.fromtimestamp(now, UTC) - timedelta(seconds=_EARLY_SECONDS)
    builder = builder.not_valid_before(begins).not_valid_after(datetime.fromtimestamp(ends, UTC))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, by: PrivateKey) -> Pair:
    certificate = builder.sign(by, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private)


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
