"""A large cluster as JSON: nodes in zones, and realistic pods of some 4 KB each, a few hundred to a workload."""

from __future__ import annotations

from typing import Any, Final

from tests.builders import container, controller, node_object, pod_object, toleration

ZONES: Final = ("zone-a", "zone-b", "zone-c")
WORKLOADS: Final = 500
ZONE_KEY: Final = "topology.kubernetes.io/zone"
HOST_KEY: Final = "kubernetes.io/hostname"
_FILLER: Final = "x" * 300


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def node(number: int) -> dict[str, Any]:
    """Nodes go round the zones."""
    return node_object(
        node_name(number),
        uid=f"node-uid-{number}",
        resource_version=str(10 + number),
        zone=ZONES[number % len(ZONES)],
        labels={"kubernetes.io/os": "linux"},
        status={"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
    )


def constraints(app: str) -> list[dict[str, Any]]:
    """Hard over zones, soft over hosts."""
    selector = {"matchLabels": {"app": app}}
    return [
        {"maxSkew": 5, "topologyKey": ZONE_KEY, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector},
        {"maxSkew": 1, "topologyKey": HOST_KEY, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector},
    ]


def pod(number: int, nodes: int) -> dict[str, Any]:
    """Pod ``number`` of its workload, bound to one of the nodes."""
    made = pending_pod(number % WORKLOADS, name=f"app-{number % WORKLOADS}-{number}")
    made["metadata"]["uid"] = f"{number:08x}-0000-4000-8000-000000000000"
    made["metadata"]["resourceVersion"] = str(100_000 + number)
    made["spec"]["nodeName"] = node_name(number % nodes)
    made["status"] = {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-11-02T08:00:00Z"}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "startTime": "2026-11-02T08:00:00Z",
        "containerStatuses": [{"name": "main", "ready": True, "imageID": _FILLER, "containerID": _FILLER}],
    }
    return made


def pending_pod(workload: int, name: str = "") -> dict[str, Any]:
    """A waiting pod of a workload."""
    app, team = f"app-{workload}", f"team-{workload % 20}"
    not_ready, unreachable = (
        {**toleration(f"node.kubernetes.io/{key}", effect="NoExecute"), "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    )
    main = container(
        image=f"registry.example/{app}:1.0",
        env=[{"name": f"SETTING_{i}", "value": _FILLER[:60]} for i in range(8)],
        requests={"cpu": "250m", "memory": "256Mi"},
        volumeMounts=[{"name": f"volume-{i}", "mountPath": f"/var/lib/{i}", "readOnly": True} for i in range(6)],
    )
    return pod_object(
        name or f"{app}-new",
        namespace=team,
        uid=f"new-{workload}",
        resource_version="99",
        labels={"app": app, "pod-template-hash": f"{workload:010x}", "team": team},
        annotations={"checksum/config": _FILLER, "prometheus.io/scrape": "true"},
        owner=controller("ReplicaSet", app),
        containers=[main],
        tolerations=[not_ready, unreachable],
        spread=constraints(app),
        more={"volumes": [{"name": f"volume-{i}", "configMap": {"name": f"{app}-{i}"}} for i in range(6)]},
    )


def furnished_node(number: int) -> dict[str, Any]:
    """The same with what the other plugins read of a node: some images, of those that workloads run, and a taint."""
    made = node(number)
    images = [f"registry.example/app-{(number * 7 + it) % WORKLOADS}:1.0" for it in range(20)]
    made["status"]["images"] = [{"names": [name], "sizeBytes": 200 << 20} for name in images]
    if number % 50 == 0:
        made["spec"]["taints"] = [{"key": "example.com/spot", "value": "", "effect": "PreferNoSchedule"}]
    return made


def furnish(made: dict[str, Any]) -> dict[str, Any]:
    """A pod with what the other plugins read of one: by its workload, terms between pods and host ports."""
    app = made["metadata"]["labels"]["app"]
    workload = int(app.rpartition("-")[2])
    apart = {"topologyKey": HOST_KEY, "labelSelector": {"matchLabels": {"app": app}}}
    if workload % 3 == 0:
        terms = [{"weight": 50, "podAffinityTerm": apart}]
        made["spec"]["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    elif workload % 30 == 1:
        made["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    if workload % 25 == 2:
        made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8000 + workload}]
    return made


def waiting_pod(number: int, workloads: int = WORKLOADS) -> dict[str, Any]:
    """One of many waiting pods, that of a workload of its own turn."""
    made = pending_pod(number % workloads, name=f"waiting-{number}")
    made["metadata"]["uid"] = f"waiting-uid-{number}"
    return versioned(made, str(900_000 + number))


def versioned(made: dict[str, Any], version: str) -> dict[str, Any]:
    """The same object in this version."""
    made["metadata"]["resourceVersion"] = version
    return made
