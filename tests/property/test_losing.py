"""After the loss of any zone, the numbers of pods add up, and the copy of the cluster is as before."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.whatif.budget import Budget
from app.whatif.losing import LossRequest, lost
from app.whatif.scratch import ScratchCluster
from tests.builders import HOSTNAME, ZONE, JsonObject, constraint, controller, taint, toleration
from tests.strategies import examples
from tests.unit.app.whatif.losses import ended
from tests.unit.app.whatif.scratches import node, pod, scratch_of

APPS = ("web", "db", "batch")
KINDS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Node", "")
NODES = tuple(f"{zone}{number}" for zone in "abc" for number in (1, 2))
VARIANTS = ("gone", "tainted", "full")
UNREACHABLE = "node.kubernetes.io/unreachable"

constraints = st.builds(
    lambda key, soft, skew, least, taints, app: constraint(
        key, soft=soft, skew=skew, min_domains=None if soft else least, taints_policy=taints, app=app
    ),
    st.sampled_from((ZONE, HOSTNAME)),
    st.sampled_from((False, False, True)),
    st.integers(1, 2),
    st.sampled_from((None, 2, 3)),
    st.sampled_from((None, "Honor")),
    st.sampled_from(APPS),
)


@st.composite
def pods(draw: st.DrawFn) -> list[JsonObject]:
    made = []
    for number in range(draw(st.integers(0, 12))):
        app, kind = draw(st.sampled_from(APPS)), draw(st.sampled_from(KINDS))
        fields: dict[str, Any] = {"owner": controller(kind, f"{app}-{kind.lower()}")} if kind else {}
        if draw(st.booleans()):
            fields["tolerations"] = [
                {**toleration(UNREACHABLE), "tolerationSeconds": draw(st.sampled_from((None, 300)))}
            ]
        fields["spread"] = draw(st.lists(constraints, max_size=2))
        made.append(
            pod(
                f"{app}-{number}",
                cpu=draw(st.sampled_from(("500m", "1", "2"))),
                node=draw(st.sampled_from(NODES)),
                labels={"app": app},
                priority=draw(st.sampled_from((0, 0, 10))),
                terminating=draw(st.sampled_from((False, False, False, True))),
                created=f"2026-11-21T10:00:{number:02}Z",
                **fields,
            )
        )
    return made


def picture(scratch: ScratchCluster) -> tuple[object, ...]:
    cluster = scratch.cluster
    return (
        {it.key: it for it in cluster.pods()},
        {name: (it.node, set(it.pods)) for name, it in cluster.nodes.items()},
        cluster.check(),
    )


@settings(max_examples=examples(200), deadline=None)
@given(pods(), st.sampled_from((ZONE, HOSTNAME)), st.booleans())
def test_numbers_add_up_and_the_copy_is_restored(made: list[JsonObject], key: str, tainted: bool) -> None:
    taints = [taint("dedicated", value="db")] if tainted else []
    nodes = [node(it, cpu="3", zone=it[0], taints=taints if it == "b1" else []) for it in NODES]
    scratch = scratch_of(*nodes, *made)
    before = picture(scratch)
    values = (None, "c", "c1") if key == ZONE else (None, "c1", "b1")

    for value in values:
        if value is not None and value not in {it.node.labels[key] for it in scratch.cluster.nodes.values()}:
            continue
        for domain in ended(lost(scratch, LossRequest(key, value), Budget(None)))["domains"]:
            for name in VARIANTS:
                rows = [it[name] for it in domain["workloads"]]
                for outcome in (domain[name], *rows):
                    assert outcome["lost"] + outcome["evicted"] == sum(
                        outcome[it] for it in ("placed", "waiting", "notRecreated", "notEnded", "notReached")
                    )
                    assert outcome["notReached"] == 0
                for row in domain["workloads"]:
                    assert 0 <= row[name]["lost"] + row[name]["evicted"] <= row["running"]
                    if change := row[name]["change"]:
                        assert 0 <= change.waiting < row[name]["waiting"]
            if value is not None:
                sums = {name: sum(it[name]["lost"] for it in domain["workloads"]) for name in VARIANTS}
                assert sums == {name: domain[name]["lost"] for name in VARIANTS}

    assert before == picture(scratch)
