"""What is missing is looked up before a decision: a pod can arrive before its owners do."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from app.kube.core_v1 import Pod
from app.verbs.context import VerbContext
from tests.api.virtual import virtual_time
from tests.builders import JsonObject, controller, make_pod
from tests.unit.app.verbs.bench import Bench, zones

KUBEVIRT = "kubevirt.io/v1"
LAUNCHER = make_pod(
    "launcher", owner=controller("VirtualMachineInstance", "db", api_version=KUBEVIRT), labels={"kubevirt.io": "x"}
)


def machine(kind: str, *, owner: JsonObject | None = None) -> JsonObject:
    metadata: JsonObject = {"name": "db", "namespace": "default", "uid": "uid-db", "resourceVersion": "1"}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": KUBEVIRT, "kind": kind, "metadata": metadata}


INSTANCE = machine("VirtualMachineInstance", owner=controller("VirtualMachine", "db", api_version=KUBEVIRT))
MACHINE = machine("VirtualMachine")


@pytest.mark.parametrize(
    ("pod", "served", "asked"),
    [
        pytest.param(
            LAUNCHER,
            [INSTANCE, MACHINE],
            ["VirtualMachineInstance default/db", "VirtualMachine default/db"],
            id="each owner names the next",
        ),
        pytest.param(LAUNCHER, [], ["VirtualMachineInstance default/db"], id="what is not there is asked for once"),
        pytest.param(
            LAUNCHER,
            [INSTANCE],
            ["VirtualMachineInstance default/db", "VirtualMachine default/db"],
            id="the chain ends where an owner is not there",
        ),
    ],
)
@virtual_time
async def test_owners_are_looked_up_one_after_the_other(
    pod: Pod, served: Iterable[JsonObject], asked: list[str]
) -> None:
    bench = Bench(*zones())
    bench.reader.others = {(it["kind"], "default", "db"): it for it in served}
    context = VerbContext(bench.cluster, {}, bench.reader, lambda: "", bench.due)

    await context.look_up_missing(bench.framework, pod)

    assert asked == bench.reader.asked


@virtual_time
async def test_a_bind_looks_up_too() -> None:
    bench = Bench(*zones(), LAUNCHER)
    bench.reader.others = {(it["kind"], "default", "db"): it for it in (INSTANCE, MACHINE)}

    assert await bench.bind("launcher", "n1") == ("bound", "")
    (posted,) = bench.binder.posted
    assert {"homeport.dev/home": "n1"} == posted.annotations
