"""Validation of ``host:port`` addresses that other processes connect to."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

_LABEL: Final = "[a-zA-Z0-9](?:[-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_HIGHEST_PORT: Final = 65535


def is_address(text: str) -> bool:
    """Return true for a name, an IPv4 address or an IPv6 address in brackets, with a port from 1 to 65535.

    Wildcard addresses (``0.0.0.0``, ``[::]``) are rejected, because a process cannot connect to them.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= _HIGHEST_PORT:
        return False
    try:
        if host.startswith("[") and host.endswith("]"):
            return not IPv6Address(host[1:-1]).is_unspecified
        if re.fullmatch(r"[0-9.]+", host):
            return not IPv4Address(host).is_unspecified
    except ValueError:
        return False
    return _NAME.fullmatch(host) is not None
