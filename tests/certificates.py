"""Authorities and certificates in files, as a volume would bring them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trustme


class Authority:
    """Issues certificates into a folder: each under its name, ``<name>.crt`` and ``<name>.key``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._issuer = trustme.CA()
        self.file = folder / f"{name}.crt"
        self._issuer.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, *names: str, **fields: Any) -> tuple[Path, Path]:
        """A pair for servers and clients; replaces one of that name. ``names``: alternative names."""
        issued = self._issuer.issue_cert(*(names or (f"{name}.example",)), **fields)
        pair = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        written = b"".join(it.bytes() for it in issued.cert_chain_pems), issued.private_key_pem.bytes()
        for file, content in zip(pair, written, strict=True):
            fresh = file.with_suffix(f"{file.suffix}.new")
            fresh.write_bytes(content)
            fresh.replace(file)
        return pair
