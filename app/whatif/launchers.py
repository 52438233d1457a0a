"""Launcher pod of a KubeVirt VirtualMachine, from the spec of its instance.

Source of the rules: ``virt-controller`` of KubeVirt 1.8. Settings of the KubeVirt object, instance types and sidecars
are not known, so the resources are approximate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from app.cache.cluster import Cluster
from app.config.manifest_fields import BadField, mapping_at, number_at, text_at
from app.config.mistakes import Place, value_at
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES, Kind, owner_kind
from app.kube.quantity import OverlongQuantity, Quantity, parse_quantity

if TYPE_CHECKING:
    from app.whatif.workloads import WorkloadManifest

APPROXIMATE: Final = "pod of a VirtualMachine, whose requests depend on the settings of KubeVirt"

_API_VERSION: Final = "kubevirt.io/v1"
_MACHINE: Final = "VirtualMachine"
_MI: Final = 1 << 20
_PAGE_TABLE: Final = 512
"""Bytes of guest memory for each byte of page tables."""

_PROCESSES: Final = 220 * _MI
"""Memory of a launcher pod's processes without the guest, in bytes. The constants up to ``_DEVICES`` are in bytes, too.
"""

_PER_CPU: Final = 8 * _MI
_IO_THREAD: Final = 8 * _MI
_GRAPHICS: Final = 32 * _MI
_DEDICATED: Final = 100 * _MI
"""Additional memory of an instance with dedicated CPUs."""

_TPM: Final = 53 * _MI
_DEVICES: Final = 1 << 30
"""Additional memory of an instance with GPUs or host devices, whatever their number."""

_CPU_RATIO: Final = 10
"""Default number of virtual CPUs per requested CPU."""

_MOST_CPUS: Final = 1 << 16
_LARGEST: Final = 1 << 60
_KVM: Final = "devices.kubevirt.io/kvm"
_DOMAIN: Final[Place] = ("domain",)
_COPIED: Final = (
    *("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName", "priorityClassName"),
    "resourceClaims",
)
"""Fields that the launcher pod has from the spec of its instance."""


def launcher_labels(labels: Mapping[str, Any], name: str, uid: str) -> dict[str, Any]:
    """Return the labels of the launcher pod of an instance with these labels."""
    added = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid, "vm.kubevirt.io/name": name[:63]}
    return {**labels, **added}


def launcher_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the launcher pod of an instance. Raises ``BadField`` with a path in the spec."""
    copied = {field: spec[field] for field in _COPIED if spec.get(field) is not None}
    selector = {**mapping_at(spec, ("nodeSelector",)), "kubevirt.io/schedulable": "true"}
    if _is_dedicated(spec):
        selector["cpumanager"] = "true"
    resources = {"requests": _requests(spec)}
    container = {"name": "compute", "image": "virt-launcher", "resources": resources}
    return {
        **copied,
        "nodeSelector": selector,
        "containers": [container],
        "volumes": list(launcher_volumes(spec)),
    }


def launcher_volumes(spec: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the volumes of an instance as pod volumes. A DataVolume becomes the claim of the same name.

    Raises ``BadField``.
    """
    volumes = spec.get("volumes")
    if not isinstance(volumes, list | None):
        raise BadField(("volumes",), "must be a list")
    for volume in volumes or ():
        source = volume.get("dataVolume") if isinstance(volume, dict) else None
        if isinstance(source, dict):
            yield {"name": volume.get("name"), "persistentVolumeClaim": {"claimName": source.get("name")}}
        else:
            yield volume


def _requests(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requests of the launcher's container. Raises ``BadField``."""
    resources = (*_DOMAIN, "resources")
    requests, limits = (mapping_at(spec, (*resources, it)) for it in ("requests", "limits"))
    dedicated = _is_dedicated(spec)
    cpus = _cpus(spec)
    if dedicated:
        isolated = value_at(spec, (*_DOMAIN, "cpu", "isolateEmulatorThread")) is True
        cpu: Any = (cpus or 1) + isolated
    elif "cpu" in requests or "cpu" in limits:
        cpu = requests.get("cpu", limits.get("cpu"))
    else:
        cpu = f"{(cpus or 1) * 1000 // _CPU_RATIO}m"
    guest = _memory(spec, requests, limits)
    overhead = _overhead(spec, guest, cpus or _limit(spec, limits, requests) or 1)
    page_size = text_at(spec, (*_DOMAIN, "memory", "hugepages", "pageSize"))
    memory = {"memory": overhead, f"hugepages-{page_size}": guest} if page_size else {"memory": guest + overhead}
    return {**limits, **requests, "cpu": cpu, **memory, _KVM: "1", **_device_requests(spec)}


def _memory(spec: Mapping[str, Any], requests: Mapping[str, Any], limits: Mapping[str, Any]) -> int:
    """Return the guest's memory in bytes: the request, else the limit, else ``guest``, else the page size, else 0."""
    for amounts, field in ((requests, "requests"), (limits, "limits")):
        if amounts.get("memory") is not None:
            return _bytes(amounts["memory"], (*_DOMAIN, "resources", field, "memory"))
    place = (*_DOMAIN, "memory")
    memory = mapping_at(spec, place)
    if memory.get("guest") is not None:
        return _bytes(memory["guest"], (*place, "guest"))
    page = mapping_at(spec, (*place, "hugepages")).get("pageSize")
    return 0 if page is None else _bytes(page, (*place, "hugepages", "pageSize"))


def _overhead(spec: Mapping[str, Any], memory: int, cpus: int) -> int:
    """Return the bytes that the launcher needs in addition to the guest's memory. ``memory``: of the guest."""
    devices = mapping_at(spec, (*_DOMAIN, "devices"))
    overhead = memory // _PAGE_TABLE + _PROCESSES + _PER_CPU * cpus + _IO_THREAD
    if devices.get("autoattachGraphicsDevice") is not False:
        overhead += _GRAPHICS
    if devices.get("tpm") is not None:
        overhead += _TPM
    if devices.get("gpus") or devices.get("hostDevices"):
        overhead += _DEVICES
    return overhead + _DEDICATED if _is_dedicated(spec) else overhead


def _device_requests(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the number of requested devices by resource name. Raises ``BadField``."""
    numbers: dict[str, int] = {}
    for kind in ("gpus", "hostDevices"):
        place = (*_DOMAIN, "devices", kind)
        devices = value_at(spec, place)
        for number, device in enumerate(devices if isinstance(devices, list) else ()):
            name = text_at(device, ("deviceName",)) if isinstance(device, dict) else ""
            if name:
                numbers[name] = numbers.get(name, 0) + 1
            elif not isinstance(device, dict):
                raise BadField((*place, number), "must be a mapping")
    return {name: str(number) for name, number in numbers.items()}


def _is_dedicated(spec: Mapping[str, Any]) -> bool:
    return value_at(spec, (*_DOMAIN, "cpu", "dedicatedCpuPlacement")) is True


def _cpus(spec: Mapping[str, Any]) -> int:
    """Return the number of virtual CPUs of the guest's topology; 0 if the spec has none. Raises ``BadField``."""
    place = (*_DOMAIN, "cpu")
    topology = [number_at(spec, (*place, it), 0) for it in ("cores", "sockets", "threads")]
    if not any(topology):
        return 0
    cpus = 1
    for number in topology:
        cpus *= number or 1
    if cpus > _MOST_CPUS:
        raise BadField(place, f"has more than {_MOST_CPUS} CPUs")
    return cpus


def _limit(spec: Mapping[str, Any], limits: Mapping[str, Any], requests: Mapping[str, Any]) -> int:
    """Return the CPUs of the limit, else of the request; 0 if the spec has neither.

    They are the guest's CPUs if the spec has no topology.
    """
    for amounts, field in ((limits, "limits"), (requests, "requests")):
        if amounts.get("cpu") is not None:
            return min(_MOST_CPUS, _quantity(amounts["cpu"], (*_DOMAIN, "resources", field, "cpu")).value())
    return 0


def _bytes(amount: Any, place: Place) -> int:
    value = _quantity(amount, place).value()
    if not 0 <= value <= _LARGEST:
        raise BadField(place, "must be an amount of bytes")
    return value


def _quantity(amount: Any, place: Place) -> Quantity:
    if not isinstance(amount, str | int) or isinstance(amount, bool):
        raise BadField(place, "must be a quantity")
    try:
        return parse_quantity(str(amount).encode(errors="replace"))
    except (msgspec.ValidationError, OverlongQuantity) as error:
        raise BadField(place, str(error) or "is too long") from None


def launcher_owners(
    cluster: Cluster, manifest: WorkloadManifest, uid: str, instance_uid: str
) -> Iterator[tuple[Kind[Any], Mapping[str, Any]]]:
    """Yield the owners of a launcher pod, with their kinds: its VirtualMachine, if that is not in the cluster yet, and
    its instance.

    Plugins need the owners of a pod to find its home. ``uid``: of a VirtualMachine that does not exist yet.
    ``instance_uid``: of the instance. An existing VirtualMachine keeps its UID, and so its home.
    """
    metadata: dict[str, Any] = {"name": manifest.name, "namespace": manifest.namespace, "resourceVersion": "1"}
    owners: list[Mapping[str, Any]] = []
    if manifest.kind == _MACHINE:
        kind = owner_kind(_API_VERSION, _MACHINE)
        known = cluster.others.get(kind, manifest.namespace, manifest.name)
        if known is None:
            yield kind, {"metadata": {**metadata, "uid": uid}}
        owner = {"apiVersion": _API_VERSION, "kind": _MACHINE, "name": manifest.name, "controller": True}
        owners.append({**owner, "uid": uid if known is None else known.uid})
    instance = {**metadata, "uid": instance_uid, "ownerReferences": owners}
    yield VIRTUAL_MACHINE_INSTANCES, {"metadata": instance, "spec": {}, "status": {}}
