"""Authorities and certificates in files, as a volume would bring them."""

from __future__ import annotations

import base64
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def badly_named(begins: datetime) -> bytes:
    """An authority, PEM, whose name is a T61String, as old ones have it: OpenSSL takes it, other libraries do not."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Muller Root")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 4711, begins, begins + timedelta(days=900))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    der = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    written = base64.encodebytes(der.replace(b"\x0c\x0bMuller Root", b"\x14\x0bM\xfcller Root"))
    return b"-----BEGIN CERTIFICATE-----\n" + written + b"-----END CERTIFICATE-----\n"


class Authority:
    """Issues certificates into a folder: each under its name, ``<name>.crt`` and ``<name>.key``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._issuer = trustme.CA()
        self.file = folder / f"{name}.crt"
        self._issuer.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, *names: str, **fields: Any) -> tuple[Path, Path]:
        """A pair for servers and clients; replaces one of that name. ``names``: alternative names.

        Both files change at once, as kubelet changes those of a volume: they are links through one link.
        """
        issued = self._issuer.issue_cert(*(names or (f"{name}.example",)), **fields)
        made = Path(tempfile.mkdtemp(dir=self._folder, prefix=f"..{name}-"))
        (made / "tls.crt").write_bytes(b"".join(it.bytes() for it in issued.cert_chain_pems))
        (made / "tls.key").write_bytes(issued.private_key_pem.bytes())
        data = self._folder / f"..{name}"
        fresh = made / "link"
        fresh.symlink_to(made, target_is_directory=True)
        fresh.replace(data)
        return self._linked(f"{name}.crt", data / "tls.crt"), self._linked(f"{name}.key", data / "tls.key")

    def _linked(self, name: str, target: Path) -> Path:
        found = self._folder / name
        if not found.is_symlink():
            found.symlink_to(target)
        return found
