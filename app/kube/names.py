"""Validation of object names. Source of the rules: ``pkg/api/validation`` of apimachinery 1.36.

Names of pods and nodes are RFC 1123 subdomains, and names of namespaces are RFC 1123 labels. The API server checks a
name at creation, and a name never changes. The name of an object of any kind is a single segment of a path.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 253
"""Maximum characters of a name."""

_LONGEST_LABEL: Final = 63
_SHOWN: Final = 64
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")


def is_subdomain(name: str) -> bool:
    """Return whether ``name`` is a valid name of a pod or a node."""
    return len(name) <= LONGEST and _SUBDOMAIN.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Return whether ``name`` is a valid name of a namespace."""
    return len(name) <= _LONGEST_LABEL and _LABEL.fullmatch(name) is not None


def is_segment(name: str) -> bool:
    """Return whether an object of some kind can have this name: a path segment of at most ``LONGEST`` characters.

    A name with "%" is invalid, because the API server decodes a path before splitting it: "%2F" would separate
    segments.
    """
    return 0 < len(name) <= LONGEST and name not in (".", "..") and "/" not in name and "%" not in name


def shown(name: str) -> str:
    """Return an untrusted name for a message: quoted, with non-ASCII characters escaped, cut to 64 characters."""
    return ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
