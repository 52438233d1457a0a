"""``StickyNodeArgs``: whose pods have a home."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.framework.parts import Part
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from plugins.sticky_node import SPEC
from plugins.sticky_node.args import KUBEVIRT, StickyNodeArgs
from plugins.sticky_node.home_state import KINDS
from plugins.sticky_node.owners import HOMES
from tests.builders import JsonObject
from tests.unit.plugins.sticky_node.machines import INSTANCE, LWS, MACHINE, SET

STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
INSTANCES = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
CLAIMS: JsonObject = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
DATABASES: JsonObject = {"apiVersion": "example.com/v1", "kind": "Database"}
IN_SETS = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "perOrdinal": True,
    "through": [STATEFUL_SET],
}


def test_without_arguments_virtual_machines_have_homes() -> None:
    assert (KUBEVIRT,) == StickyNodeArgs().owners
    assert (INSTANCE, MACHINE, HOMES, *KINDS) == SPEC.needs(StickyNodeArgs()).kinds


def test_no_owners_is_a_choice() -> None:
    assert () == SPEC.needs(StickyNodeArgs.model_validate({"owners": []})).kinds


def test_the_type_words_of_a_kube_scheduler_configuration_are_taken() -> None:
    words = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "StickyNodeArgs"}

    assert (KUBEVIRT,) == StickyNodeArgs.model_validate(words).owners


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([IN_SETS, {**STATEFUL_SET, "perOrdinal": True}], id="the longer way first"),
        pytest.param([{**STATEFUL_SET, "perOrdinal": True}, IN_SETS], id="and last"),
    ],
)
def test_rules_may_begin_alike(owners: list[JsonObject]) -> None:
    args = StickyNodeArgs.model_validate({"owners": owners})

    kinds = SPEC.needs(args).kinds
    assert ({SET, LWS, HOMES, *KINDS}, 5) == (set(kinds), len(kinds))
    assert {SET: False, LWS: False, HOMES: True} == {it.kind: it.whole for it in SPEC.needs(args).writes}


def test_claims_are_written_and_the_volumes_of_all_pods_read_where_a_rule_speaks_of_them() -> None:
    without = StickyNodeArgs()
    args = StickyNodeArgs.model_validate({"owners": [*without.model_dump()["owners"], {**CLAIMS, "selector": {}}]})

    kinds = SPEC.needs(args).kinds
    assert (*kinds[:2], PERSISTENT_VOLUME_CLAIMS, *kinds[3:]) == kinds
    assert len(kinds) == len(set(kinds)) == len(SPEC.needs(without).kinds)
    assert {MACHINE, HOMES} == {it.kind for it in SPEC.needs(without).writes}
    assert {MACHINE, HOMES, PERSISTENT_VOLUME_CLAIMS} == {it.kind for it in SPEC.needs(args).writes}
    assert ((), (Part.VOLUMES,)) == (SPEC.needs(without).parts, SPEC.needs(args).parts)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param({"owner": []}, "owner", id="an unknown argument"),
        pytest.param({"owners": [{**STATEFUL_SET, "kind": ""}]}, "kind", id="an empty kind"),
        pytest.param({"owners": [{**STATEFUL_SET, "perordinal": True}]}, "perordinal", id="a misspelt argument"),
        pytest.param(
            {"owners": [IN_SETS, IN_SETS]},
            "owners: more than one rule for pods of apps/v1 StatefulSet of leaderworkerset.x-k8s.io/v1 LeaderWorkerSet",
            id="two rules that go the same way",
        ),
        pytest.param(
            {"owners": [{**DATABASES, "through": [STATEFUL_SET]}, {**DATABASES, "policy": "hard"}]},
            "owners: rules for homes on example.com/v1 Database differ in policy",
            id="two policies for the homes of one kind",
        ),
        pytest.param(
            {"owners": [{**DATABASES, "through": [STATEFUL_SET]}, {**DATABASES, "remember": "name"}]},
            "owners: rules for homes on example.com/v1 Database differ in remember",
            id="homes of one kind that are remembered and are not",
        ),
        pytest.param(
            {"owners": [{**DATABASES, "through": [STATEFUL_SET], "perOrdinal": True}, DATABASES]},
            "owners: rules for homes on example.com/v1 Database differ in perOrdinal",
            id="one home and many on objects of one kind",
        ),
        pytest.param(
            {"owners": [CLAIMS]},
            "selector: must select the v1 PersistentVolumeClaim that keep homes; {} selects all",
            id="claims, and nobody says which",
        ),
        pytest.param(
            {"owners": [{**CLAIMS, "selector": {"labels": {"a": "b"}}}]},
            "selector Value error, labels: no such field of a label selector",
            id="a selector that is none",
        ),
        pytest.param(
            {"owners": [{**CLAIMS, "selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}]},
            "selector",
            id="an operator that is none",
        ),
        pytest.param(
            {"owners": [{**CLAIMS, "selector": {}, "perOrdinal": True}]},
            "perOrdinal: not for v1 PersistentVolumeClaim, because all pods that use a claim share one home",
            id="ordinals of a claim",
        ),
        pytest.param(
            {"owners": [{**CLAIMS, "selector": {}, "through": [STATEFUL_SET]}]},
            "through: not for v1 PersistentVolumeClaim",
            id="controllers on the way to a claim",
        ),
        pytest.param(
            {"owners": [{**DATABASES, "selector": {}}]},
            "selector: only a rule for v1 PersistentVolumeClaim can have one, not a rule for example.com/v1 Database",
            id="a selector of other objects",
        ),
        pytest.param(
            {"owners": [{**IN_SETS, "through": []}]},
            "through: must be apps/v1 StatefulSet alone, which owns the pods of leaderworkerset.x-k8s.io/v1",
            id="a way that no pod goes",
        ),
        pytest.param(
            {"owners": [{**DATABASES, "through": [STATEFUL_SET, STATEFUL_SET]}]},
            "through: apps/v1 StatefulSet occurs twice",
            id="a way in circles",
        ),
        pytest.param(
            {"owners": [{**DATABASES, "through": [{"apiVersion": "v1", "kind": "Pod"}]}]},
            "v1 Pod cannot keep homes, and cannot be in through",
            id="through a pod",
        ),
    ],
)
def test_a_mistake_is_named(args: JsonObject, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        StickyNodeArgs.model_validate(args)

    sentences = [f"{'.'.join(map(str, it['loc']))} {it['msg']}" for it in refused.value.errors()]
    assert any(said in sentence for sentence in sentences), sentences
