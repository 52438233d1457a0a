"""What the API server answers must be what it was asked for."""

from __future__ import annotations

from typing import TypeVar

from app.kube.api_errors import ApiUnavailable
from app.kube.kinds import KubeObject

Object = TypeVar("Object", bound=KubeObject)


def as_asked(found: Object, namespace: str, name: str) -> Object:
    """``found``, unless it is another object than the one asked for. Raises ``ApiUnavailable``: that is no answer."""
    if found.key != (namespace, name):
        told = "/".join(filter(None, found.key))
        raise ApiUnavailable(f"asked for {'/'.join(filter(None, (namespace, name)))}, was answered {told}")
    return found
