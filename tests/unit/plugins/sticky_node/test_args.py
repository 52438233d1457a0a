"""``StickyNodeArgs``: whose pods have a home."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from plugins.sticky_node import SPEC
from plugins.sticky_node.args import KUBEVIRT, StickyNodeArgs
from plugins.sticky_node.memory import HOMES
from plugins.sticky_node.standing import KINDS
from tests.builders import JsonObject
from tests.unit.plugins.sticky_node.machines import DATABASE, INSTANCE, MACHINE, SET

STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
INSTANCES = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
MACHINES = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}


def test_without_arguments_virtual_machines_have_homes() -> None:
    assert (KUBEVIRT,) == StickyNodeArgs().owners
    assert (INSTANCE, MACHINE, *KINDS, HOMES) == SPEC.kinds(StickyNodeArgs())


def test_owners_replace_the_default() -> None:
    owners = [{**STATEFUL_SET, "perOrdinal": True}, {"apiVersion": "example.com/v1", "kind": "Database"}]

    assert (SET, DATABASE, *KINDS, HOMES) == SPEC.kinds(StickyNodeArgs.model_validate({"owners": owners}))


def test_no_owners_is_a_choice() -> None:
    assert () == SPEC.kinds(StickyNodeArgs.model_validate({"owners": []}))


def test_the_type_words_of_a_kube_scheduler_configuration_are_taken() -> None:
    words = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "StickyNodeArgs"}

    assert (KUBEVIRT,) == StickyNodeArgs.model_validate(words).owners


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
            {"owners": [{**MACHINES, "through": [INSTANCES]}, INSTANCES]},
            "owners: more than one rule for pods of kubevirt.io/v1 VirtualMachineInstance",
            id="two rules that begin alike",
        ),
    ],
)
def test_a_mistake_is_named(args: JsonObject, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        StickyNodeArgs.model_validate(args)

    sentences = [f"{'.'.join(map(str, it['loc']))} {it['msg']}" for it in refused.value.errors()]
    assert any(said in sentence for sentence in sentences), sentences
