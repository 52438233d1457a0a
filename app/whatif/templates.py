from msgspec import Struct
import msgspec
from app.kube.core_v1 import Pod


class TemplateError(ValueError):
    index = 0
    field = ""
    message = ""


class SimulatedPod(Struct, frozen=True):
    pod: Pod
    workload: str = ""
    approximate: str = ""


class ScaledWorkload(Struct):
    added: list[SimulatedPod]
    removed: list[Pod]


def pods_of(objects, cluster, namespace, most):
    out = []
    for o in objects:
        m = {"namespace": namespace, **o["metadata"]}
        m.setdefault("uid", m["namespace"] + "/" + m["name"])
        m.setdefault("resourceVersion", "1")
        out.append(SimulatedPod(cluster.core.decode_pod(msgspec.json.encode({**o, "metadata": m}))))
    return out


def scaled(*a):
    raise TemplateError
