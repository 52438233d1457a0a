"""The word nearest to a machine says which policy holds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.kube.core_v1 import decode_namespace
from app.kube.kinds import NAMESPACES
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.policies import Applied, Policies, kinds_of_policies, unknown_policy
from plugins.sticky_node.table import Policy
from tests.builders import JsonObject, encoded
from tests.unit.plugins.sticky_node.machines import Machines, launcher

MACHINES: JsonObject = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "through": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}],
}
OF_NAMESPACES: list[JsonObject] = [
    {"namespaceSelector": {"matchLabels": {"team": "a"}}, "policy": "soft", "gracePeriod": "1h"},
    {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}, "policy": "hard"},
]


class World:
    """One machine, whose namespace has labels."""

    def __init__(self, args: JsonObject, labels: Mapping[str, str] | None = None, **annotations: str) -> None:
        self.machines = Machines(args)
        self.machines.machine(**annotations)
        parsed = StickyNodeArgs.model_validate(args)
        self.policies = Policies(parsed, self.machines.cluster)
        self._owners = Owners(parsed.owners, self.machines.cluster)
        self._version = 0
        self.label(labels or {})

    def label(self, labels: Mapping[str, str]) -> None:
        self._version += 1
        metadata = {"name": "default", "resourceVersion": str(self._version), "labels": labels}
        self.machines.cluster.others.upsert(NAMESPACES, decode_namespace(encoded({"metadata": metadata})))

    @property
    def owner(self) -> Owner:
        found = self._owners.of(launcher())
        assert isinstance(found, Owner)
        return found

    def of(self, pod_says: str = "") -> Applied:
        said = {"homeport.dev/policy": pod_says} if pod_says else {}
        return self.policies.of(self.owner, launcher(annotations=said))


def test_without_any_word_the_default_holds() -> None:
    assert Applied(Policy.GRACE, 900.0, "default") == World({}).of()
    assert Applied(Policy.HARD, 60.0, "default") == World({"policy": "hard", "gracePeriod": "1m"}).of()


EVERY: JsonObject = {
    "policy": "off",
    "owners": [{**MACHINES, "policy": "hard"}],
    "namespaces": [{"namespaceSelector": {}, "policy": "grace", "gracePeriod": "10m"}],
}


@pytest.mark.parametrize(
    ("args", "pod_says", "owner_says", "expected"),
    [
        pytest.param(EVERY, "soft", "off", Applied(Policy.OFF, 900.0, "owner"), id="the owner's annotation"),
        pytest.param(EVERY, "soft", "", Applied(Policy.SOFT, 900.0, "pod"), id="the template's"),
        pytest.param(EVERY, "", "", Applied(Policy.GRACE, 600.0, "namespaces[0]"), id="the namespace's"),
        pytest.param(
            {**EVERY, "namespaces": []}, "", "", Applied(Policy.HARD, 900.0, "owners: VirtualMachine"), id="the kind's"
        ),
        pytest.param({"policy": "off"}, "", "", Applied(Policy.OFF, 900.0, "default"), id="the arguments'"),
    ],
)
def test_the_nearest_word_counts(args: JsonObject, pod_says: str, owner_says: str, expected: Applied) -> None:
    annotations = {"policy": owner_says} if owner_says else {}
    assert expected == World(args, None, **annotations).of(pod_says)


def test_what_names_no_policy_is_passed_over_and_told() -> None:
    world = World({}, policy="sfot")

    assert Applied(Policy.SOFT, 900.0, "pod") == world.of("soft")
    assert Applied(Policy.GRACE, 900.0, "default") == world.of("Hard")
    assert "sfot" == unknown_policy(world.owner)
    assert "" == unknown_policy(World({}, policy="hard").owner)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"team": "a"}, Applied(Policy.SOFT, 3600.0, "namespaces[0]"), id="the first that matches"),
        pytest.param({"team": "b"}, Applied(Policy.HARD, 900.0, "namespaces[1]"), id="the second"),
        pytest.param({}, Applied(Policy.GRACE, 900.0, "default"), id="none"),
    ],
)
def test_namespaces_are_told_apart_by_their_labels(labels: Mapping[str, str], expected: Applied) -> None:
    assert expected == World({"namespaces": OF_NAMESPACES}, labels).of()


def test_a_namespace_that_is_labelled_anew_has_its_policy_at_once() -> None:
    world = World({"namespaces": OF_NAMESPACES}, {"team": "b"})
    assert Policy.HARD is world.of().policy

    world.label({"team": "a"})
    assert Policy.SOFT is world.of().policy
    assert not world.policies.is_off(world.owner)


def test_namespaces_are_read_only_where_a_rule_needs_them() -> None:
    assert [()] == [tuple(kinds_of_policies(StickyNodeArgs()))]
    assert (NAMESPACES,) == kinds_of_policies(StickyNodeArgs.model_validate({"namespaces": OF_NAMESPACES}))
