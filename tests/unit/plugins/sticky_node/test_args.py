"""``StickyNodeArgs``: whose pods have a home."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from plugins.sticky_node import SPEC
from plugins.sticky_node.args import KUBEVIRT, StickyNodeArgs
from plugins.sticky_node.memory import HOMES
from plugins.sticky_node.standing import KINDS
from tests.builders import JsonObject
from tests.unit.plugins.sticky_node.machines import DATABASE, INSTANCE, LWS, MACHINE, SET

STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
INSTANCES = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
DATABASES = {"apiVersion": "example.com/v1", "kind": "Database"}
IN_SETS = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "perOrdinal": True,
    "through": [STATEFUL_SET],
}
MACHINES = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}


def test_without_arguments_virtual_machines_have_homes() -> None:
    assert (KUBEVIRT,) == StickyNodeArgs().owners
    assert (INSTANCE, MACHINE, HOMES, *KINDS) == SPEC.kinds(StickyNodeArgs())


def test_owners_replace_the_default() -> None:
    owners = [{**STATEFUL_SET, "perOrdinal": True}, {"apiVersion": "example.com/v1", "kind": "Database"}]

    assert (SET, DATABASE, HOMES, *KINDS) == SPEC.kinds(StickyNodeArgs.model_validate({"owners": owners}))


def test_no_owners_is_a_choice() -> None:
    assert () == SPEC.kinds(StickyNodeArgs.model_validate({"owners": []}))


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

    kinds = SPEC.kinds(args)
    assert ({SET, LWS, HOMES, *KINDS}, 5) == (set(kinds), len(kinds))
    assert {SET: False, LWS: False, HOMES: True} == {it.kind: it.whole for it in SPEC.writes(args)}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param({"owner": []}, "owner", id="an unknown argument"),
        pytest.param({"owners": [{"kind": "StatefulSet"}]}, "apiVersion", id="no apiVersion"),
        pytest.param({"owners": [{**STATEFUL_SET, "kind": ""}]}, "kind", id="an empty kind"),
        pytest.param({"owners": [{**STATEFUL_SET, "perordinal": True}]}, "perordinal", id="a misspelt argument"),
        pytest.param({"owners": [{**MACHINES, "through": [{"kind": "x"}]}]}, "through.0.apiVersion", id="half a link"),
        pytest.param({"owners": None}, "owners", id="null"),
        pytest.param(
            {"owners": [STATEFUL_SET, {**STATEFUL_SET, "perOrdinal": True}]},
            "owners: more than one rule for pods of apps/v1 StatefulSet",
            id="two rules for the same pods",
        ),
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
            {"owners": [{**IN_SETS, "through": []}]},
            "through: pods of leaderworkerset.x-k8s.io/v1 LeaderWorkerSet belong to apps/v1 StatefulSet",
            id="a way that no pod goes",
        ),
        pytest.param(
            {"owners": [{**DATABASES, "through": [STATEFUL_SET, STATEFUL_SET]}]},
            "through: apps/v1 StatefulSet is on the way twice",
            id="a way in circles",
        ),
        pytest.param(
            {"owners": [{**DATABASES, "through": [{"apiVersion": "v1", "kind": "Pod"}]}]},
            "v1 Pod neither keeps homes nor leads to what does",
            id="through a pod",
        ),
    ],
)
def test_a_mistake_is_named(args: JsonObject, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        StickyNodeArgs.model_validate(args)

    sentences = [f"{'.'.join(map(str, it['loc']))} {it['msg']}" for it in refused.value.errors()]
    assert any(said in sentence for sentence in sentences), sentences
