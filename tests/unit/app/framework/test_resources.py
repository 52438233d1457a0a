"""Rules of what the pods of a node take together."""

from typing import Any

import pytest

from app.framework.resources import HostPorts, Mounts, Totals
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra, HostPort, NotDecoded
from tests.builders import JsonObject, container, encoded, mounting, pod_object

CORE = core_v1(list(Extra))
EVERYWHERE = "0.0.0.0"


def make_pod(name: str = "web-1", *ports: JsonObject, **requests: Any) -> Pod:
    return CORE.decode_pod(encoded(pod_object(name, containers=[container(requests=requests, ports=list(ports))])))


def port(number: int = 80, ip: str = EVERYWHERE, protocol: str = "TCP") -> HostPort:
    return HostPort(ip, protocol, number)


@pytest.mark.parametrize(
    ("taken", "asked", "expected"),
    [
        pytest.param([port()], [port()], True, id="the same"),
        pytest.param([port()], [port(81)], False, id="another port"),
        pytest.param([port()], [port(protocol="UDP")], False, id="another protocol"),
        pytest.param([port(ip="10.0.0.1")], [port(ip="10.0.0.1")], True, id="the same address"),
        pytest.param([port(ip="10.0.0.1")], [port(ip="10.0.0.2")], False, id="another address"),
        pytest.param([port(ip="10.0.0.1")], [port()], True, id="all addresses asked for"),
        pytest.param([port()], [port(ip="10.0.0.1")], True, id="all addresses taken"),
        pytest.param([port(ip="10.0.0.1")], [port(81), port()], True, id="one of two"),
    ],
)
def test_when_ports_are_in_conflict(taken: list[HostPort], asked: list[HostPort], expected: bool) -> None:
    assert expected == HostPorts(taken).conflicts(asked)


def test_a_port_that_two_pods_take_is_free_when_both_are_gone() -> None:
    ports = HostPorts([port(), port(), port(81, "10.0.0.1")])

    ports.add([port()], -1)
    assert ports.conflicts([port()])

    ports.add([port()], -1)
    assert not ports.conflicts([port()])
    assert (1, [port(81, "10.0.0.1")]) == (len(ports), list(ports))


def test_a_copy_of_ports_is_its_own() -> None:
    ports = HostPorts([port()])
    copy = ports.copy()

    copy.add([port(), port(81)])

    assert ([port()], [port(), port(81)]) == (list(ports), list(copy))
    assert ports == HostPorts([port()]) != copy


def test_totals_are_those_of_all_pods() -> None:
    totals = Totals(list(Extra), [make_pod("a", {"hostPort": 80}, cpu="1"), make_pod("b", cpu="500m", memory="1Ki")])

    assert ({"cpu": 1500, "memory": 1024}, {"cpu": 1500, "memory": 1024 + (200 << 20)}, [port()]) == (
        totals.requested,
        totals.non_zero_requested,
        list(totals.ports),
    )


def test_what_came_and_left_leaves_nothing_behind() -> None:
    totals, pod = Totals(list(Extra)), make_pod("a", {"hostPort": 80}, cpu="1")

    totals.add(pod)
    copy = totals.copy()
    copy.add(pod, -1)
    assert totals != Totals(list(Extra)) == copy

    totals.add(pod, -1)
    assert totals == Totals(list(Extra))


def test_pods_with_volumes_that_matter_are_kept_by_uid() -> None:
    core = core_v1([Extra.VOLUMES])
    plain, mounts = (core.decode_pod(encoded(pod_object(it, more=mounting(*of)))) for it, of in (("a", ()), ("b", "c")))
    totals = Totals([Extra.VOLUMES], [plain, mounts])
    copy = totals.copy()
    copy.add(mounts, -1)

    assert {mounts.uid: Mounts("default", "b", mounts.uid, mounts.spec.volumes)} == totals.mounts
    assert ({}, "default/b") == (copy.mounts, str(totals.mounts[mounts.uid]))


def test_an_equal_stamp_is_one_of_equal_mounts() -> None:
    core = core_v1([Extra.VOLUMES])
    plain, one, two = (
        core.decode_pod(encoded(pod_object(it, more=mounting(*of)))) for it, of in (("a", ()), ("b", "c"), ("c", "c"))
    )
    totals = Totals([Extra.VOLUMES], [one])
    copies = [totals.copy(), totals.copy(), totals.copy()]
    copies[0].add(plain)
    copies[1].add(two)
    copies[2].add(two)

    assert totals.mounts_stamp == copies[0].mounts_stamp
    assert 3 == len({it.mounts_stamp for it in (totals, *copies)})
    assert Totals([Extra.VOLUMES]).mounts_stamp == Totals([Extra.VOLUMES], [plain]).mounts_stamp


@pytest.mark.parametrize(
    ("extra", "readable"),
    [
        pytest.param(Extra.RESOURCES, {"requested", "non_zero_requested"}, id="requests"),
        pytest.param(Extra.PORTS, {"ports"}, id="ports"),
        pytest.param(Extra.VOLUMES, {"mounts", "mounts_stamp"}, id="volumes"),
        pytest.param(Extra.IMAGES, set(), id="neither"),
    ],
)
def test_what_was_not_declared_is_not_there_to_be_read(extra: Extra, readable: set[str]) -> None:
    totals = Totals([extra], [core_v1([extra]).decode_pod(encoded(pod_object()))])

    for name in {"requested", "non_zero_requested", "ports", "mounts", "mounts_stamp"} - readable:
        with pytest.raises(NotDecoded):
            getattr(totals, name)
    assert all(getattr(totals, name) is not None for name in readable)
