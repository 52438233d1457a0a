"""What may be a name. Source of the rules: ``pkg/api/validation`` of apimachinery 1.36.

Pods and nodes are named by subdomains, namespaces by labels, both of RFC 1123; that is checked when an object is made,
and a name never changes. Every name is one segment of a path, whatever its kind.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 253
_LONGEST_LABEL: Final = 63
_SHOWN: Final = 64
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")


def is_subdomain(name: str) -> bool:
    """Whether a pod or a node may be called so."""
    return len(name) <= LONGEST and _SUBDOMAIN.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Whether a namespace may be called so."""
    return len(name) <= _LONGEST_LABEL and _LABEL.fullmatch(name) is not None


def is_segment(name: str) -> bool:
    """Whether an object of any kind may be called so.

    The API server takes a path apart only after it has decoded it: there an escaped slash is a slash.
    """
    return 0 < len(name) <= LONGEST and name not in (".", "..") and "/" not in name and "%" not in name


def shown(name: str) -> str:
    """What claims to be a name, for a message: in quotes, without anything unprintable, cut where it is long."""
    return ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
