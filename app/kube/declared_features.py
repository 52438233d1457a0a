"""Features that nodes declare and pods require, for the plugin NodeDeclaredFeatures.

Source of the rules: component-helpers ``nodedeclaredfeatures`` of Kubernetes 1.36. The features that a pod requires are
derived from its spec only, not from feature gates. Only two of the registered features (``_NEEDED``) affect scheduling.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import shared

DECLARED_FEATURES: Final = "status.declaredFeatures"
RESTART_RULES: Final = "spec.containers.restartPolicyRules"

RESTART_ALL_CONTAINERS: Final = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"

_REGISTERED: Final = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
)
"""Features that Kubernetes 1.36 registers, sorted by name."""

_NEEDED: Final = frozenset((RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK))
_RESTART_ALL: Final = "RestartAllContainers"

NO_FEATURES: Final[frozenset[str]] = frozenset()


class _RuleObject(Struct):
    action: str | None = None


_RULES: Final[Decoder[list[_RuleObject] | None]] = Decoder(list[_RuleObject] | None)
_FEATURES: Final[Decoder[list[str] | None]] = Decoder(list[str] | None)


def _parse_rules(data: bytes) -> bool:
    return any(it.action == _RESTART_ALL for it in _RULES.decode(data) or ())


def _parse_declared(data: bytes) -> frozenset[str]:
    """Return the declared features that a pod can require.

    Like ``FeatureMapper.TryMap`` of the Go package, walk the declared names and ``_REGISTERED`` in parallel, as sorted
    lists. A declared name that is not in sorted order is therefore ignored.
    """
    registered = iter((*_REGISTERED, None))
    expected = next(registered)
    declared: set[str] = set()
    for name in _FEATURES.decode(data) or ():
        while expected is not None and expected < name:
            expected = next(registered)
        if expected is None:
            break
        if expected == name:
            declared.add(sys.intern(expected))
            expected = next(registered)
    return frozenset(declared & _NEEDED)


_restarts_all: Final = shared(RESTART_RULES, _parse_rules)

declared_features_of: Final = shared(DECLARED_FEATURES, _parse_declared)
"""Return the features that a node declares and a pod can require.

Raises ``Oversized`` or ``msgspec.ValidationError``.
"""


def needed_features(rules: Iterable[Raw], *, host_network: bool, host_users: bool) -> frozenset[str]:
    """Return the features that a pod requires. ``rules`` are the raw restart rules of each of its containers.

    ``host_users`` is true if the pod runs in the user namespace of the host, which is the default. Raises ``Oversized``
    or ``msgspec.ValidationError``.
    """
    restarting = [_restarts_all(it) for it in rules if bytes(it)]
    needed = {RESTART_ALL_CONTAINERS} if any(restarting) else set()
    if host_network and not host_users:
        needed.add(USER_NAMESPACES_HOST_NETWORK)
    return frozenset(needed) if needed else NO_FEATURES
