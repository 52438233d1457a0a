"""Create a certificate authority and issue P-256 pairs in PEM. No I/O.

The authority is valid for ten years, because kube-scheduler reads its CA file only once. Leaves are short-lived,
because kube-scheduler and kubelets read them again at each handshake. Validity begins an hour early because of skew.
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
"""Lifetime of an authority."""

SERVING_SECONDS: Final = 7 * 86_400.0
"""Lifetime of a serving certificate."""

_EARLY_SECONDS: Final = 3600.0
"""Time by which the validity of a certificate begins before its creation, to tolerate clock skew."""

_RENEWED_AFTER: Final = 2 / 3
"""Fraction of its lifetime after which a pair is renewed; the rest covers times when the API server is unreachable."""

COMMON_NAME: Final = "homeport authority"
"""Prefix of the common name of every authority created here; part of its serial number follows."""

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

_LARGEST: Final = 256 << 10
"""Maximum PEM length in bytes; a valid pair with a few authorities is always shorter."""


PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
"""Keys created here are elliptic curve keys; an authority provided by the operator can have an RSA key."""


class BadPair(ValueError):
    """The input is not a certificate with its key; the message says why."""


class Pair(Struct, frozen=True):
    """PEM: one or more certificates, and the key of the first."""

    certificates: bytes
    key: bytes


class CertificateInfo(Struct, frozen=True):
    """Fields read from a certificate. ``begins`` and ``ends`` are seconds since the epoch."""

    common_name: str
    issuer: str
    begins: float
    ends: float
    names: tuple[str, ...]

    def is_due(self, now: float) -> bool:
        """Return true if a pair issued here must be renewed, or if the clock was ahead when it was issued."""
        issued = self.begins + _EARLY_SECONDS
        return not self.begins <= now < issued + (self.ends - issued) * _RENEWED_AFTER


def _raises_bad_pair(function: Callable[P, R]) -> Callable[P, R]:
    """Convert every exception that ``cryptography`` raises for bad input into ``BadPair``."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BadPair:
            raise
        except _UNREADABLE as error:
            raise BadPair(f"the certificate cannot be read: {_line(error)}") from None

    return wrapper


def new_authority(now: float) -> Pair:
    """Create an authority that can sign certificates, but no intermediate authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"{COMMON_NAME} {serial:x}"[: len(COMMON_NAME) + 9])
    builder = _builder(name, name, key.public_key(), serial, now, now + AUTHORITY_SECONDS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _signed(builder.add_extension(_usage(signs_certificates=True), critical=True), key, key)


@_raises_bad_pair
def issue(authority: Pair, common_name: str, names: Sequence[str], *, seconds: float, now: float) -> Pair:
    """Issue a client pair, also valid for servers if DNS ``names`` are given.

    It expires with the authority at the latest.

    Raises ``BadPair`` for an unusable or expired authority.
    """
    issuer, issuer_key = _read(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + seconds, issuer.not_valid_after_utc.timestamp())
    if ends <= now:
        raise BadPair("the authority has expired")
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
    serial = x509.random_serial_number()
    builder = _builder(_name(common_name), issuer.subject, key.public_key(), serial, now, ends)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(above, critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
    return _signed(builder, key, issuer_key)


@_raises_bad_pair
def certificate_info(certificates: bytes) -> CertificateInfo:
    """Read the first certificate. Raises ``BadPair``."""
    return _known(_first(certificates))


@_raises_bad_pair
def authority_info(authority: Pair) -> CertificateInfo:
    """Read the authority's certificate.

    Raises ``BadPair`` if it is not a CA, or if its key belongs to another certificate.
    """
    certificate, _ = _read(authority)
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        raise BadPair("the certificate does not belong to an authority") from None
    if not constraints.ca:
        raise BadPair("the certificate does not belong to an authority")
    return _known(certificate)


def is_issued_by(authority: Pair, pair: Pair) -> bool:
    """Return true if the pair is a certificate with its key, signed by this authority."""
    try:
        issuer, _ = _read(authority)
        certificate, _ = _read(pair)
    except BadPair:
        return False
    return _signed_by(issuer, certificate)


def is_of_any(authorities: bytes, certificates: bytes) -> bool:
    """Return true if one of several authorities signed the certificate."""
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
        raise BadPair("the key is neither an elliptic curve key nor an RSA key")
    if certificate.public_key() != key.public_key():
        raise BadPair("the key does not match the certificate")
    return certificate, key


def _first(certificates: bytes) -> x509.Certificate:
    if len(certificates) > _LARGEST:
        raise BadPair("the certificate is too long")
    try:
        return x509.load_pem_x509_certificates(certificates)[0]
    except _UNREADABLE as error:
        raise BadPair(f"the certificate cannot be read: {_line(error)}") from None


def _known(certificate: x509.Certificate) -> CertificateInfo:
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(alternatives.get_values_for_type(x509.DNSName))
    except (x509.ExtensionNotFound, *_UNREADABLE):
        names = ()
    begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    subject, issuer = _common_name(lambda: certificate.subject), _common_name(lambda: certificate.issuer)
    return CertificateInfo(subject, issuer, begins, ends, names)


def _common_name(name: Callable[[], x509.Name]) -> str:
    """Return the common name; empty if there is none or it has an obsolete encoding."""
    try:
        return next((str(it.value) for it in name().get_attributes_for_oid(NameOID.COMMON_NAME)), "")
    except _UNREADABLE:
        return ""


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage of an authority, or of a leaf."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


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
