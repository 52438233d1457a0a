"""Whatever stands where a part is decoded on demand: it is read, or an error names the field it stands in."""

import copy
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from app.kube.core_decoding import core_v1
from app.kube.extras import Extra
from tests.builders import (
    JsonObject,
    container,
    encoded,
    expression,
    node_object,
    pod_object,
    preferred_affinity,
    required_affinity,
    term,
    weighted,
)
from tests.strategies import examples

CORE: Final = core_v1([Extra.PREFERRED_AFFINITY, Extra.SCHEDULING_GATES, Extra.FEATURES, Extra.IMAGES])
TERM: Final = term(expression("disk", "In", "ssd"), fields=[expression("metadata.name", "In", "n1")])
RULES: Final = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]

POD: Final = pod_object(
    "pending",
    gated=True,
    node_selector={"disk": "ssd"},
    affinity={
        "nodeAffinity": {
            **required_affinity(TERM)["nodeAffinity"],
            **preferred_affinity(weighted(1, TERM))["nodeAffinity"],
        }
    },
    containers=[container(restartPolicyRules=RULES)],
    more={
        "hostNetwork": True,
        "hostUsers": False,
        "initContainers": [container("init", restartPolicyRules=RULES)],
        "volumes": [{"name": "v", "image": {"reference": "data:1"}}],
    },
)
NODE: Final = node_object(
    "n1", status={"declaredFeatures": ["A", "B"], "images": [{"names": ["web:1"], "sizeBytes": 1 << 20}]}
)

OF_PODS: Final = ("affinity", "nodeSelector", "schedulingGates", "containers", "initContainers", "volumes")
READ: Final = frozenset((*OF_PODS, "hostNetwork", "hostUsers", "declaredFeatures", "images"))

absurd: Final[st.SearchStrategy[Any]] = st.sampled_from(
    (
        None, True, 0, -1, 2**31, 2**63, 10**400, 1.5, "", "x", "🦆" * 40_000, [], {}, [None], [[]], [{}], {"x": None},
        [0], ["x", 7], {"": ""}, Raw(b"1e400"), Raw(b"-1e-400"), Raw(b"[" * 900 + b"]" * 900),
        [{"name": "x"}] * 3_000, {str(it): {} for it in range(300)},
    )
)  # fmt: skip


def places(found: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in an object, itself left out."""
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [place for key, value in inside for place in ((*at, key), *places(value, (*at, key)))]


def replaced(found: JsonObject, place: tuple[Any, ...], value: Any) -> JsonObject:
    changed = copy.deepcopy(found)
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def below(found: JsonObject, part: str) -> list[tuple[Any, ...]]:
    """The places in what is read of ``part``."""
    return [it for it in places(found) if it[0] == part and len(it) > 1 and it[1] in READ]


@pytest.mark.parametrize(
    ("found", "part", "decode"),
    [
        pytest.param(POD, "spec", CORE.decode_pod, id="pod"),
        pytest.param(NODE, "status", CORE.decode_node, id="node"),
    ],
)
@settings(derandomize=True, max_examples=examples(400))
@given(data=st.data())
def test_an_absurd_part_is_read_or_named(found: JsonObject, part: str, decode: Any, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(below(found, part)))
    raw = encoded(replaced(found, place, data.draw(absurd)))

    fault = fault_of(decode, raw)

    assert fault is None or any(it in fault for it in place[1:] if isinstance(it, str)), place


def fault_of(decode: Any, raw: bytes) -> str | None:
    """What is said of an object that cannot be read. Any other error is one of ours."""
    try:
        decode(raw)
    except msgspec.ValidationError as error:
        return str(error)
    return None
