"""Finds the ResourceClaims of a pod, including the claim for its extended resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from app.framework.objects import Objects
from app.kube.claims import PodClaim
from app.kube.core_v1 import Pod
from app.kube.kinds import RESOURCE_CLAIMS
from app.kube.resource_v1 import ClaimSpec, ResourceClaim
from plugins.in_tree.dynamic_resources.extended import requested_resources
from plugins.in_tree.dynamic_resources.inventory import Inventory

PLACEHOLDER: Final = "<extended-resources>"
"""Placeholder name of an extended resource claim that does not exist yet. No object can have this name, because it is
invalid.
"""


class ClaimNotFound(Exception):
    """A claim of a pod is missing, being deleted, or not owned by the pod. The text is kube-scheduler's."""


class PodDeviceClaims(Struct, eq=False):
    """Claims of a pod at the beginning of its evaluation, and results of Filter.

    ``claims``: claims that the pod's spec names. ``resources``: requested amounts of extended resources that a
    DeviceClass could provide. ``extended``: claim for ``resources``, which is a placeholder until the claim exists;
    ``None`` if no DeviceClass provides any of them. ``solutions``: alternatives that Filter has chosen, by node.
    ``variants``: placeholder claims by the resources that they request.
    """

    claims: tuple[ResourceClaim, ...] = ()
    extended: ResourceClaim | None = None
    resources: Mapping[str, int] = {}
    solutions: dict[str, tuple[frozenset[str], ...]] = {}
    variants: dict[tuple[str, ...], ResourceClaim] = {}

    def clone(self) -> PodDeviceClaims:
        return self

    @property
    def all_claims(self) -> tuple[ResourceClaim, ...]:
        """Claims of the spec, followed by the claim for extended resources."""
        return self.claims if self.extended is None else (*self.claims, self.extended)


class ClaimResolver:
    """Finds the claims of pods."""

    def __init__(self, objects: Objects, inventory: Inventory) -> None:
        self._objects = objects
        self._inventory = inventory

    def of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """Return the claims that the pod names and, by its status, needs. Raises ``ClaimNotFound``."""
        return tuple(found for it in pod.spec.claims.claims if (found := self._claim_of(pod, it)) is not None)

    def _claim_of(self, pod: Pod, named: PodClaim) -> ResourceClaim | None:
        """Return the claim; ``None`` if the pod's status says that no claim was needed. Raises ``ClaimNotFound``."""
        name = named.claim
        if name is None:
            if named.template is None:
                raise ClaimNotFound(
                    f'pod "{pod}", spec.resourceClaim "{named.name}": none of the supported fields are set'
                )
            if not named.status:
                raise ClaimNotFound(f'pod "{pod}": ResourceClaim not created yet')
            name = named.generated
            if name is None:
                return None
        claim = self._objects.get(RESOURCE_CLAIMS, pod.namespace, name)
        if claim is None:
            raise ClaimNotFound(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if claim.terminating:
            raise ClaimNotFound(f'resourceclaim "{claim.name}" is being deleted')
        if named.claim is None and (claim.owner is None or claim.owner.uid != pod.uid):
            raise ClaimNotFound(f"ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)")
        return claim

    def pod_claims(self, pod: Pod) -> PodDeviceClaims:
        """Return the claims that a pod names and the claim for its extended resources. Raises ``ClaimNotFound``."""
        claims = self.of(pod)
        extended: ResourceClaim | None = None
        resources: Mapping[str, int] = {}
        if may_need_devices(pod):
            resources = requested_resources(pod)
            if any(self._inventory.class_of_resource(it) is not None for it in resources):
                extended = self._inventory.extended_claim(pod.name, pod.uid)
                extended = extended or ResourceClaim(pod.namespace, PLACEHOLDER, "", False, None, ClaimSpec())
        return PodDeviceClaims(claims, extended, resources, {}, {})


def may_need_devices(pod: Pod) -> bool:
    """Return true if a pod has claims, or requests a resource with "/" in its name: DeviceClasses provide no others."""
    return pod.spec.claims.wants_devices or any("/" in it for it in pod.spec.resources.requests)
