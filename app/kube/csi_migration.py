"""Translation of in-tree volumes to volumes of the CSI drivers that replace the in-tree volume plugins.

``DRIVERS`` lists the in-tree plugins whose volumes are translated. These are the plugins that kube-scheduler translates
with its default feature gates. Source of the rules: ``k8s.io/csi-translation-lib`` of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from app.kube.node_affinity import NodeSelectorRequirement, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.selectors import IN

EBS: Final = "kubernetes.io/aws-ebs"
GCE: Final = "kubernetes.io/gce-pd"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
CINDER: Final = "kubernetes.io/cinder"
PORTWORX: Final = "kubernetes.io/portworx-volume"

DRIVERS: Final[Mapping[str, str]] = {
    EBS: "ebs.csi.aws.com",
    GCE: "pd.csi.storage.gke.io",
    AZURE_DISK: "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
    PORTWORX: "pxd.portworx.com",
}
"""CSI driver by in-tree plugin, for the plugins whose volumes kube-scheduler translates.

``isCSIMigrationOn`` (NodeVolumeLimits) and ``isCSIMigrationOnForPlugin`` (VolumeBinding) list these plugins only. Azure
Files and vSphere volumes have been migrated too, but kube-scheduler does not translate them.
"""

NOT_COUNTED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""In-tree plugins that a CSI driver has replaced, but whose volumes do not count toward the limit of the driver.

kube-scheduler does not translate their volumes.
"""

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"

BETWEEN_ZONES: Final = "__"
"""Separator of several zones in the zone label of a PersistentVolume."""

_TOPOLOGY_KEYS: Final[Mapping[str, str]] = {
    EBS: "topology.ebs.csi.aws.com/zone",
    GCE: "topology.gke.io/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
"""Topology key of the CSI driver, by in-tree plugin. For other plugins, the node affinity is not translated."""

_UNSPECIFIED: Final = "UNSPECIFIED"
"""Placeholder for an unknown project or zone in the handle of a GCE disk."""

_EBS_URL: Final = "aws://"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")
_MANAGED: Final = "managed"
_PARTS_OF_A_ZONE: Final = 3
"""Number of parts of a GCE zone name, separated by hyphens. All parts except the last form the region."""

_NO_REGION: Final = "failed to get region from zones"
_BAD_ZONE: Final = "zone in unexpected format, expected: {locale}-{region}-{zone}, got"


class Untranslatable(ValueError):
    """Raised if a volume cannot be translated. The message equals that of ``csi-translation-lib``."""


class MigratedVolume(Struct, frozen=True, gc=False):
    """Volume of the in-tree ``plugin``. ``handle`` identifies the volume to the CSI driver."""

    plugin: str
    handle: str

    @property
    def driver(self) -> str:
        return DRIVERS[self.plugin]


class _GceVolumeObject(Struct, rename={"pd_name": "pdName"}):
    pd_name: str | None = None


class VolumeIdObject(Struct, rename={"volume_id": "volumeID"}):
    volume_id: str | None = None


class AzureObject(Struct, rename={"disk_uri": "diskURI"}):
    disk_uri: str | None = None
    kind: str | None = None


class InTreeSources(Struct, rename="camel"):
    """In-tree sources of a PersistentVolume, for the plugins in ``DRIVERS``. A valid volume has at most one."""

    gce_persistent_disk: _GceVolumeObject | None = None
    aws_elastic_block_store: VolumeIdObject | None = None
    azure_disk: AzureObject | None = None
    cinder: VolumeIdObject | None = None
    portworx_volume: VolumeIdObject | None = None

    def migrated(self, labels: Mapping[str, str]) -> tuple[str, MigratedVolume | None, str]:
        """Return (in-tree plugin, CSI volume, error) for a PersistentVolume with these labels.

        Without an in-tree source of ``DRIVERS``, the plugin is ``""`` and the CSI volume ``None``. If the translation
        fails, the CSI volume is ``None``; otherwise the error is ``""``.
        """
        plugin = ""
        try:
            if self.gce_persistent_disk is not None:
                plugin = GCE
                return plugin, gce_disk(self.gce_persistent_disk.pd_name or "", zones_label_of(labels)), ""
            if self.aws_elastic_block_store is not None:
                plugin = EBS
                return plugin, ebs_disk(self.aws_elastic_block_store.volume_id or ""), ""
            if self.azure_disk is not None:
                plugin = AZURE_DISK
                return plugin, azure_disk(self.azure_disk.disk_uri or "", self.azure_disk.kind), ""
        except Untranslatable as error:
            return plugin, None, str(error)
        if self.cinder is not None:
            return CINDER, cinder_volume(self.cinder.volume_id or ""), ""
        if self.portworx_volume is not None:
            return PORTWORX, portworx_volume(self.portworx_volume.volume_id or ""), ""
        return "", None, ""


def gce_disk(name: str, zones_label: str | None = None) -> MigratedVolume:
    """Translate a GCE disk. ``zones_label``: zones label of its PersistentVolume; several zones make the disk regional.

    Raises ``Untranslatable`` if these zones are malformed or in different regions.
    """
    zones = (zones_label or "").split(BETWEEN_ZONES)
    if len(zones) > 1:
        return MigratedVolume(GCE, f"projects/{_UNSPECIFIED}/regions/{_region_of(zones)}/disks/{name}")
    return MigratedVolume(GCE, f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{name}")


def _region_of(zones: Iterable[str]) -> str:
    """Return the region of all zones. Raises ``Untranslatable`` if a zone is malformed, or if the regions differ."""
    regions: set[str] = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != _PARTS_OF_A_ZONE:
            raise Untranslatable(f"{_NO_REGION}: {_BAD_ZONE}: {zone}")
        regions.add("-".join(parts[:-1]))
    if len(regions) != 1:
        listed = " ".join(f"{it}:{{}}" for it in sorted(regions))
        raise Untranslatable(f"{_NO_REGION}: multiple or no regions gotten from zones, got: map[{listed}]")
    return regions.pop()


def ebs_disk(volume_id: str) -> MigratedVolume:
    """Translate an EBS volume, given by its ID or as a URL: ``aws://zone/vol-1``. Raises ``Untranslatable``."""
    if not volume_id.startswith(_EBS_URL):
        return MigratedVolume(EBS, volume_id)
    problem = "failed to translate Kubernetes ID to EBS Volume ID"
    try:
        path = unquote(urlsplit(volume_id).path).strip("/")
    except ValueError:
        raise Untranslatable(f"{problem} Invalid disk name ({volume_id})") from None
    if not _EBS_VOLUME.fullmatch(path):
        raise Untranslatable(f"{problem} Invalid format for AWS volume ({volume_id})")
    return MigratedVolume(EBS, path)


def azure_disk(uri: str, kind: str | None) -> MigratedVolume:
    """Translate an Azure disk. Raises ``Untranslatable`` if ``kind`` is neither ``None`` nor Managed."""
    if kind is not None and kind.lower() != _MANAGED:
        raise Untranslatable(f"kind({kind}) is not supported in csi migration")
    return MigratedVolume(AZURE_DISK, uri)


def cinder_volume(volume_id: str) -> MigratedVolume:
    return MigratedVolume(CINDER, volume_id)


def portworx_volume(volume_id: str) -> MigratedVolume:
    return MigratedVolume(PORTWORX, volume_id)


def zones_label_of(labels: Mapping[str, str]) -> str:
    """Return the zones label of a GCE disk; empty if there is none. The beta label takes precedence."""
    return labels.get(BETA_ZONE) or labels.get(ZONE, "")


def migrated_affinity(
    plugin: str, affinity: RequiredNodeAffinity | None, labels: Mapping[str, str]
) -> RequiredNodeAffinity | None:
    """Return the node affinity of a PersistentVolume, with the zone key replaced by the CSI driver's topology key.

    ``None`` means no affinity. If the affinity has no zones, the zones of the volume's zone label are added. If
    ``_labels_used`` returns the beta keys, the region key is replaced by the stable one. For a plugin without an entry
    in ``_TOPOLOGY_KEYS``, the affinity is returned unchanged.
    """
    key = _TOPOLOGY_KEYS.get(plugin)
    if key is None:
        return affinity
    zone, region = _labels_used(affinity, labels)
    if _has_values(affinity, zone):
        affinity = _renamed(affinity, zone, key)
    elif zone in labels:
        affinity = _with_zones(affinity, key, labels[zone])
    if region == BETA_REGION and _has_values(affinity, region):
        affinity = _renamed(affinity, region, REGION)
    return affinity


def _labels_used(affinity: RequiredNodeAffinity | None, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the label keys for zone and region: the beta or stable keys, as in the affinity, or else as in the labels.

    Within each of the two, the stable key of zones takes precedence. If neither has a zone, return the stable keys.
    """
    keys = frozenset[str]() if affinity is None else affinity.label_keys()
    for present in (keys, labels.keys()):
        if ZONE in present:
            return ZONE, REGION
        if BETA_ZONE in present:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _has_values(affinity: RequiredNodeAffinity | None, key: str) -> bool:
    terms = () if affinity is None else affinity.terms or ()
    return any(it.key == key and it.values for term in terms for it in term.expressions)


def _renamed(affinity: RequiredNodeAffinity | None, key: str, name: str) -> RequiredNodeAffinity | None:
    """Return the affinity with the label key ``key`` replaced by ``name``."""
    if affinity is None:
        return None

    def renamed(term: NodeSelectorTerm) -> NodeSelectorTerm:
        expressions = (replace(it, key=name) if it.key == key else it for it in term.expressions)
        return NodeSelectorTerm(tuple(expressions), term.fields)

    return RequiredNodeAffinity(terms=tuple(map(renamed, affinity.terms or ())))


def _with_zones(affinity: RequiredNodeAffinity | None, key: str, label: str) -> RequiredNodeAffinity | None:
    """Return the affinity with one more requirement in each term: ``key`` In the zones that ``label`` lists.

    Without terms, the result has one term. If ``label`` lists no zone, the affinity is returned unchanged.
    """
    zones = tuple(sorted({it.strip() for it in label.split(BETWEEN_ZONES)} - {""}))
    if not zones:
        return affinity
    zonal = NodeSelectorRequirement(key, IN, zones)
    terms = (affinity.terms if affinity is not None else None) or (NodeSelectorTerm(),)
    return RequiredNodeAffinity(terms=tuple(NodeSelectorTerm((*it.expressions, zonal), it.fields) for it in terms))
