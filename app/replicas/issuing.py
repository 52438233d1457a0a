"""Creates a certificate authority and issues certificates with P-256 keys, in PEM. No I/O.

The authority is valid for ten years, because kube-scheduler reads its CA file only once. The certificates that it
issues are short-lived, because they can be replaced without a restart.
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
"""Lifetime of an authority in seconds (ten years)."""

SERVING_SECONDS: Final = 7 * 86_400.0
"""Lifetime of a serving certificate in seconds (seven days)."""

_EARLY_SECONDS: Final = 3600.0
"""Seconds by which the validity of a certificate begins before its creation, to tolerate clock skew."""

_RENEWED_AFTER: Final = 2 / 3
"""Fraction of its lifetime after which a certificate is renewed.

The remaining third is for retries while the API server is unreachable.
"""

COMMON_NAME: Final = "homeport authority"
"""Beginning of the common name of Homeport's authorities. The first digits of the serial number follow it."""

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

_LARGEST: Final = 256 << 10
"""Maximum length in bytes of PEM certificates and of a PEM key. Longer input is rejected without parsing."""


PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
"""Supported private keys. Homeport creates elliptic curve keys; an authority of the operator can have an RSA key."""


class BadPair(ValueError):
    """Raised if a certificate or key cannot be used, for example if the two do not match; the message says why."""


class Pair(Struct, frozen=True):
    """One or more certificates in PEM, and the private key of the first in PEM."""

    certificates: bytes
    key: bytes


class CertificateInfo(Struct, frozen=True):
    """Fields of a certificate. It is valid from ``begins`` to ``ends``, in seconds since the epoch.

    ``common_name`` and ``issuer`` are common names. ``names`` are the DNS names.
    """

    common_name: str
    issuer: str
    begins: float
    ends: float
    names: tuple[str, ...]

    def needs_renewal(self, now: float) -> bool:
        """Return true if the certificate must be renewed, because two thirds of its lifetime are over.

        Also true if it is not valid yet, because the clock was wrong when it was issued.
        """
        issued = self.begins + _EARLY_SECONDS
        return not self.begins <= now < issued + (self.ends - issued) * _RENEWED_AFTER


def _raises_bad_pair(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator that converts the exceptions that ``cryptography`` raises for invalid input into ``BadPair``."""

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
    """Create a self-signed authority that can issue certificates, but no intermediate authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"{COMMON_NAME} {serial:x}"[: len(COMMON_NAME) + 9])
    builder = _builder(name, name, key.public_key(), serial, now, now + AUTHORITY_SECONDS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _signed(builder.add_extension(_usage(signs_certificates=True), critical=True), key, key)


@_raises_bad_pair
def issue(authority: Pair, common_name: str, names: Sequence[str], *, seconds: float, now: float) -> Pair:
    """Create a key and issue a client certificate for it. With DNS ``names``, it is a server certificate too.

    The certificate is valid for ``seconds`` from ``now``, but expires no later than the authority. Raises ``BadPair``
    for an unusable or expired authority, and for an invalid name.
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
    """Return the fields of the first certificate. Raises ``BadPair`` if it cannot be read."""
    return _known(_first(certificates))


@_raises_bad_pair
def authority_info(authority: Pair) -> CertificateInfo:
    """Return the fields of the authority's first certificate.

    Raises ``BadPair`` if the certificate or the key cannot be read, if they do not match, or if it is not a CA's.
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
    """Return true if the first certificate of ``authority`` issued that of ``pair``, and both match their keys."""
    try:
        issuer, _ = _read(authority)
        certificate, _ = _read(pair)
    except BadPair:
        return False
    return _signed_by(issuer, certificate)


def is_of_any(authorities: bytes, certificates: bytes) -> bool:
    """Return true if one of ``authorities`` issued the first of ``certificates``; false if they cannot be read."""
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
    """Return the common name of subject or issuer; empty if it is missing or cannot be decoded."""
    try:
        return next((str(it.value) for it in name().get_attributes_for_oid(NameOID.COMMON_NAME)), "")
    except _UNREADABLE:
        return ""


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage extension: for an authority if ``signs_certificates``, else for a leaf certificate."""
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
