"""The deletion cost of a pod is read as the ReplicaSet controller reads it, and only where a plugin declares it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from app.kube.core_decoding import core_v1
from app.kube.deletion_cost import DELETION_COST, NO_COST, DeletionCost, cost_of, deletion_cost_of
from app.kube.disruption import Disruption, Lifecycle
from app.kube.extras import Extra
from tests.builders import encoded, make_pod, pod_object


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0", DeletionCost(0)),
        ("-3", DeletionCost(-3)),
        ("-0", DeletionCost(0)),
        ("-007", DeletionCost(-7)),
        ("2147483647", DeletionCost(2**31 - 1)),
        ("-2147483648", DeletionCost(-(2**31))),
        ("2147483648", DeletionCost(invalid="2147483648")),
        ("+1", DeletionCost(invalid="+1")),
        ("01", DeletionCost(invalid="01")),
        ("-", DeletionCost(invalid="-")),
        ("1.5", DeletionCost(invalid="1.5")),
        (" 1", DeletionCost(invalid=" 1")),
        ("1\n", DeletionCost(invalid="1\n")),
        ("٣", DeletionCost(invalid="٣")),
        ("", DeletionCost(invalid="(empty)")),
        ("9" * 5000, DeletionCost(invalid="9" * 64)),
    ],
)
def test_a_value(text: str, cost: DeletionCost) -> None:
    assert cost_of(text) == cost


@pytest.mark.parametrize(
    ("annotations", "cost"),
    [
        (b"", NO_COST),
        (b"null", NO_COST),
        (b'{"a": "b"}', NO_COST),
        (f'{{"x": "{DELETION_COST}"}}'.encode(), NO_COST),
        (f'{{"a": "b", "{DELETION_COST}": "-2"}}'.encode(), DeletionCost(-2)),
        (f'{{"{DELETION_COST}": null}}'.encode(), DeletionCost(invalid="(empty)")),
    ],
)
def test_annotations(annotations: bytes, cost: DeletionCost) -> None:
    assert deletion_cost_of(Raw(annotations)) == cost


def test_annotations_that_are_no_map_of_texts_are_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"metadata\.annotations: "):
        deletion_cost_of(Raw(f'{{"{DELETION_COST}": -2}}'.encode()))


@pytest.mark.parametrize(
    ("extras", "lifecycle"),
    [
        ((Extra.DELETION_COST,), Lifecycle(DeletionCost(-2))),
        ((Extra.DELETION_COST, Extra.PENDING_VOLUMES), Lifecycle(DeletionCost(-2))),
        ((Extra.DELETION_COST, Extra.RESOURCES), Lifecycle(DeletionCost(-2))),
        ((Extra.DELETION_COST, Extra.DISRUPTION), Disruption(cost=DeletionCost(-2), pending=True)),
        ((Extra.DISRUPTION,), Disruption(pending=True)),
        ((Extra.PENDING_VOLUMES,), None),
    ],
)
def test_it_is_read_beside_every_other_part(extras: tuple[Extra, ...], lifecycle: Lifecycle | None) -> None:
    found = pod_object("web-1", annotations={DELETION_COST: "-2", "homeport.dev/home": "n1"})
    pod = core_v1(extras).decode_pod(encoded(found))

    assert pod.lifecycle == lifecycle
    assert pod.annotations == {"homeport.dev/home": "n1"}


def test_a_copy_has_another_cost_if_the_part_is_declared() -> None:
    pod = core_v1((Extra.DELETION_COST,)).decode_pod(encoded(pod_object("web-1")))
    plain = make_pod("web-1")

    assert pod.with_deletion_cost(DeletionCost(-1)).deletion_cost == DeletionCost(-1)
    assert plain.with_deletion_cost(DeletionCost(-1)) is plain
