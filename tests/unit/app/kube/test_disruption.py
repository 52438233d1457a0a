"""Rules of what preemption reads of a pod: it is there where somebody asks for it, and costs the others nothing."""

import gc
import sys

import pytest

from app.kube.core_decoding import PLAIN, core_v1
from app.kube.disruption import NO_DISRUPTION, Disruption
from app.kube.extras import Extra, NotDecoded
from tests.builders import JsonObject, encoded, make_pod, pod_object

CORE = core_v1([Extra.DISRUPTION])
NEW_YEAR = 1767225600.0
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
OVER = {**PREEMPTED, "status": "False"}
EVICTED = {**PREEMPTED, "reason": "EvictionByEvictionAPI"}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        pytest.param({"preemptionPolicy": None}, {"startTime": None, "conditions": None}, NO_DISRUPTION, id="nulls"),
        pytest.param({"preemptionPolicy": "Never"}, {}, Disruption(never_preempts=True), id="Never"),
        pytest.param({}, {"startTime": "2026-01-01T00:00:00Z"}, Disruption(started=NEW_YEAR), id="started"),
        pytest.param(
            {}, {"startTime": "2026-01-01T01:00:00.5+01:00"}, Disruption(started=NEW_YEAR + 0.5), id="in another zone"
        ),
        pytest.param({}, {"conditions": [{"type": "Ready"}, PREEMPTED]}, Disruption(preempted=True), id="preempted"),
        pytest.param({}, {"conditions": [{"type": "Ready", "status": "True"}]}, Disruption(ready=True), id="ready"),
        pytest.param({}, {"conditions": [{"type": "Ready", "status": "False"}]}, NO_DISRUPTION, id="not ready"),
        pytest.param({}, {"phase": "Pending"}, Disruption(pending=True), id="its containers do not run yet"),
        pytest.param({}, {"conditions": [OVER]}, NO_DISRUPTION, id="not any more"),
        pytest.param(
            {}, {"conditions": [{**PREEMPTED, "reason": "EvictionByEvictionAPI"}]}, NO_DISRUPTION, id="evicted"
        ),
        pytest.param({}, {"conditions": [OVER, PREEMPTED]}, NO_DISRUPTION, id="first counts"),
    ],
)
def test_policy_start_and_condition_are_read(spec: JsonObject, status: JsonObject, expected: Disruption) -> None:
    pod = CORE.decode_pod(encoded(pod_object(node="n1", more=spec, status=status)))

    assert expected == pod.disruption
    assert (pod.disruption is NO_DISRUPTION) == (expected == NO_DISRUPTION)


def test_pods_of_one_workload_share_their_spec_whenever_they_started() -> None:
    """Kept beside it: verdicts are shared by spec."""
    pods = [CORE.decode_pod(encoded(pod_object(status={"startTime": f"2026-01-01T00:00:0{it}Z"}))) for it in (1, 2)]

    assert pods[0].spec is pods[1].spec
    assert [NEW_YEAR + 1, NEW_YEAR + 2] == [it.disruption.started for it in pods]


def test_who_does_not_ask_for_it_has_none() -> None:
    """A pod is 128 bytes in any case: its fields fill what the allocator gives."""
    pod = PLAIN.decode_pod(encoded(pod_object(status={"startTime": "yesterday"})))

    with pytest.raises(NotDecoded, match=r"disruption: not decoded, since no enabled plugin declares Part\.DISRUPTION"):
        _ = pod.disruption
    assert 128 == sys.getsizeof(make_pod())
    assert not gc.is_tracked(pod)
