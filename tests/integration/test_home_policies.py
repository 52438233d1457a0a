"""What policies mean to machines whose home is full, left out, lost, rebooted or contested.

The test plays kubelet and KubeVirt's controllers, in their order of writes. kube-scheduler looks at a pod that it has
refused again after five minutes: whoever is bound here before was woken.
"""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chaos.proxy import HELD_DOWN, FaultProxy, kubeconfig_through
from tests.controlplane import objects
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport, start_scheduler
from tests.integration.test_events import told as events_of
from tests.integration.test_home_identity import HOME_POD, annotations, fail, seen, succeed, told, wait_home
from tests.integration.test_home_stories import HOME, boot, home_of, install_kubevirt, shut_down
from tests.integration.test_home_trust import lines
from tests.integration.test_home_waking import AWAY, GRACE, annotate, configured, cordon, refused, since
from tests.integration.test_permissions import bind
from tests.integration.test_sampling_stories import make_left, results, start_sampling
from tests.integration.test_spread_stories import WEB, make_zones, wait_all_bound

StartHomeport = Callable[..., Homeport]

POLICY: Final = "homeport.dev/policy"
NOT_HOME: Final = "node(s) were not the pod's home"
GONE: Final = "node(s) were refused, because the pod's home is gone"
SPREAD: Final = "node(s) didn't match pod topology spread constraints"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"

CROWD: Final = 400
"""More nodes than kube-scheduler shows in three windows of 100: it may look again before anybody leads it anywhere."""

TRIES: Final = 5

EVACUATED: Final = 20
REBOOTED: Final = 200

LONGEST_LINE: Final = 2000
"""Characters of a line in the log that names what somebody wrote; what they wrote has 10,000."""


def lives(client: Client, name: str, home: str, **said: str) -> Json:
    """A machine that is down, and whose home somebody has written; ``said``: further annotations of Homeport's."""
    machine = objects.virtual_machine(name)
    more = {f"homeport.dev/{key.replace('_', '-')}": value for key, value in said.items()}
    machine["metadata"]["annotations"] = {HOME: home, **more}
    return client.create(machine)


def launch(client: Client, machine: Json, suffix: str = "first", **fields: Any) -> str:
    """The same as ``boot``, of a pod that asks for something. Returns its name."""
    name = machine["metadata"]["name"]
    instance = client.create(objects.virtual_machine_instance(name, machine["metadata"]["uid"]))
    return str(client.create(objects.launcher_pod(instance, suffix=suffix, **fields))["metadata"]["name"])


def run_on(client: Client, machine: Json, node: str, suffix: str = "first") -> str:
    """A machine that runs there, as KubeVirt tells of it. Returns its pod."""
    pod = launch(client, machine, suffix, node_name=node)
    client.patch_status("VirtualMachineInstance", machine["metadata"]["name"], {"nodeName": node})
    return pod


def wait_refused(client: Client, pod: str, reason: str) -> None:
    client.wait_for(lambda: refused(client, pod, reason), what=f"{pod} to be refused: {reason}")


def fill(client: Client, node: str, cpu: str, name: str = "crowd", **fields: Any) -> str:
    return str(client.create(objects.pod(name, node_name=node, requests={"cpu": cpu}, **fields))["metadata"]["name"])


# full, or not shown


@pytest.mark.parametrize("failback", [False, True])
def test_a_soft_home_that_is_full_is_passed_over_and_kept_by_failback_alone(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path, *, failback: bool
) -> None:
    """Nobody but kube-scheduler knows that it is full. At the next start both nodes have room again."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 1}, cpu="4")
    machine = lives(client, "db01", "zone-a-0")
    crowd = fill(client, "zone-a-0", "4")

    with start_scheduler(plane, start_homeport(configured(tmp_path, policy="soft", failback=failback))):
        first = launch(client, machine, requests={"cpu": "1"})
        assert "zone-b-0" == client.wait_bound(first)
        home = "zone-a-0" if failback else "zone-b-0"
        wait_home(client, "db01", home)
        assert (HOME in client.get("Pod", first)["metadata"]["annotations"]) is not failback

        shut_down(client, "db01", first)
        client.delete("Pod", crowd)
        fill(client, home, "2")  # less attractive than the other to all but Homeport
        assert home == client.wait_bound(launch(client, machine, "second", requests={"cpu": "1"}))
        wait_home(client, "db01", home)


def test_a_soft_home_that_is_not_shown_is_tried_first(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """100 of 402 nodes are shown. One machine comes home by the nomination; the home of the other turns out full.

    A try has an end, which a busy machine may see first: then the machine goes elsewhere, and the next has its try.
    """
    client = plane.client
    install_kubevirt(client)
    for number in range(CROWD):
        client.create(objects.node(f"crowd-{number}", zone="crowd", cpu="4"))
    make_left(client, "left-0", "left-1")
    fill(client, "left-1", "4")
    machines = [lives(client, f"free{number}", "left-0") for number in range(TRIES)]
    full_home = lives(client, "full01", "left-1")
    homeport = start_homeport(configured(tmp_path, policy="soft"))

    with start_sampling(plane, homeport):
        starts = (client.wait_bound(launch(client, it, requests={"cpu": "1"})) for it in machines)
        tries = next(number for number, node in enumerate(starts) if node == "left-0")
        client.wait_for(lambda: results(homeport).keys() & {"hit", "lost"}, what="what became of the nomination")
        full = launch(client, full_home, requests={"cpu": "1"})
        assert client.wait_bound(full) not in ("left-0", "left-1")
        assert "left-0" == home_of(client, f"free{tries}")
        wait_home(client, "full01", client.node_of(full))


def test_a_machine_whose_home_does_not_take_it_is_told_why(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """One home is full, the other has a taint, of which Homeport's profile knows nothing; a third node has room."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 1, "zone-c": 1}, cpu="4")
    crowd = fill(client, "zone-a-0", "3500m")
    client.patch("Node", "zone-b-0", {"spec": {"taints": [objects.taint("example.com/dedicated")]}}, namespace="")
    homes = {"full01": "zone-a-0", "tainted01": "zone-b-0"}
    machines = {
        "full01": lives(client, "full01", "zone-a-0"),
        "tainted01": lives(client, "tainted01", "zone-b-0", policy="grace"),
    }
    homeport = start_homeport(configured(tmp_path, policy="hard"))

    with start_scheduler(plane, homeport):
        pods = {name: launch(client, machine, requests={"cpu": "1"}) for name, machine in machines.items()}
        for each in (*pods, *pods.values()):
            seen(client, each, "HomeRefuses")
        found = explained(homeport, pods["full01"])
        client.delete("Pod", crowd)
        client.patch("Node", "zone-b-0", {"spec": {"taints": None}}, namespace="")
        assert homes == {name: client.wait_bound(pod) for name, pod in pods.items()}

    notes = {
        name: (events_of(client, name)["HomeRefuses"]["note"], events_of(client, pod)["HomeRefuses"]["note"])
        for name, pod in pods.items()
    }
    full, tainted = (
        "waits for zone-a-0: Insufficient cpu",
        "waits for zone-b-0: node(s) had untolerated taint(s); from 20",
    )
    assert (f"default/{pods['full01']} {full}", f"the pod {full}") == notes["full01"]
    assert notes["tainted01"][0].startswith(f"default/{pods['tainted01']} {tainted}")
    assert notes["tainted01"][1].startswith(f"the pod {tainted}")

    assert ["zone-a-0"] == found["feasible"]
    (row,) = found["plugins"]["StickyNode"]["tables"][1]["rows"]
    assert ["zone-a-0", "Insufficient cpu"] == row[:2]
    assert "InterPodAffinity" in row[2]
    assert [
        "node zone-a-0 is the home, and does not take the pod: remove the cause: Insufficient cpu",
        "move the home or release it: set or remove homeport.dev/home on VirtualMachine default/full01",
        f"let the pod go elsewhere while its home does not take it: set {POLICY}=soft on VirtualMachine default/full01",
    ] == found["plugins"]["StickyNode"]["unblock"]


# lost


def test_a_lost_node_under_each_policy(plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path) -> None:
    """Its Node is deleted, and comes back under its name when two of three machines have moved on."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 2})
    machines = {it: lives(client, f"{it}01", "zone-a-0", policy=it) for it in ("hard", "soft", "grace")}
    before = {policy: run_on(client, it, "zone-a-0") for policy, it in machines.items()}
    others = ("zone-b-0", "zone-b-1")

    with start_scheduler(plane, start_homeport(configured(tmp_path, policy="off", gracePeriod="10s"))):
        client.delete("Node", "zone-a-0")
        for policy, pod in before.items():
            shut_down(client, f"{policy}01", pod)
        pods = {policy: boot(client, it, "second") for policy, it in machines.items()}
        wait_refused(client, pods["grace"], GRACE)
        wait_refused(client, pods["hard"], GONE)
        homes = {"soft": client.wait_bound(pods["soft"])}
        client.wait_for(lambda: since(client, "grace01").startswith("gone "), what="the time to be on the machine")

        homes["grace"] = client.wait_bound(pods["grace"])
        client.wait_for(lambda: "GraceOver" in events_of(client, "grace01"), what="the machine to be told")
        for policy, home in homes.items():
            assert home in others
            wait_home(client, f"{policy}01", home)
        assert ("", "zone-a-0") == (client.node_of(pods["hard"]), home_of(client, "hard01"))
        assert "HomeGone" in events_of(client, pods["hard"])

        client.create_node(objects.node("zone-a-0", zone="zone-a", cpu="640"))
        assert "zone-a-0" == client.wait_bound(pods["hard"])
        client.wait_for(lambda: not since(client, "grace01"), what="the clock of the old home to go")


def register(client: Client, name: str, machine: str) -> None:
    """What a kubelet does, on a machine that its firmware calls so."""
    info = {"systemUUID": machine, "machineID": "of this installation", "bootID": "of this boot"}
    client.create_node(objects.node(name, cpu="16"))
    client.patch_status("Node", name, {"nodeInfo": info})


def test_a_reinstalled_node_is_home_and_another_machine_of_its_name_is_not(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """Both Nodes are deleted and registered anew while their machines are down; with ``identity: machine``."""
    client = plane.client
    install_kubevirt(client)
    for name in ("same", "swapped", "other"):
        register(client, name, f"{name}-machine")
    places = {"same01": "same", "swap01": "swapped", "soft01": "swapped"}
    machines = {name: client.create(objects.virtual_machine(name)) for name in places}
    client.patch("VirtualMachine", "soft01", {"metadata": {"annotations": {POLICY: "soft"}}})

    with start_scheduler(plane, start_homeport(configured(tmp_path, policy="hard", identity="machine"))):
        for name, place in places.items():
            first = launch(client, machines[name], node_selector={objects.HOSTNAME_LABEL: place})
            assert place == client.wait_bound(first)
            wait_home(client, name, place)
            shut_down(client, name, first)
        for name, machine in (("same", "same-machine"), ("swapped", "another-machine")):
            client.delete("Node", name)
            register(client, name, machine)
        for name in ("swap01", "soft01"):
            seen(client, name, "HomeReplaced")
        for name, requests in (("same", "8"), ("other", "1")):
            fill(client, name, requests, f"crowd-{name}")
        pods = {name: launch(client, machine, "second") for name, machine in machines.items()}
        assert "same" == client.wait_bound(pods["same01"])
        wait_refused(client, pods["swap01"], GONE)
        soft = client.wait_bound(pods["soft01"])
        wait_home(client, "soft01", soft)
        annotate(client, "swap01", None)
        assert client.wait_bound(pods["swap01"]) in ("swapped", "other")


# evacuated and rebooted


def target_of(client: Client, name: str, number: int) -> str:
    """The pod that KubeVirt makes for a machine to move into: labelled, and on no node with another pod of it."""
    instance = client.get("VirtualMachineInstance", name)
    same = {"matchLabels": {"kubevirt.io/created-by": instance["metadata"]["uid"]}}
    term = {"labelSelector": same, "topologyKey": objects.HOSTNAME_LABEL}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    labels = {"kubevirt.io/migrationJobUID": f"migration-{number}"}
    pod = objects.launcher_pod(instance, suffix=f"target-{number}", labels=labels, affinity=affinity)
    return str(client.create(pod)["metadata"]["name"])


def test_the_machines_of_a_cordoned_node_move_out_with_their_homes(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """Hard homes. Two of the migrations fail: their machines still live where they run."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 2})
    names = [f"vm{number:02}" for number in range(EVACUATED)]
    machines = {name: lives(client, name, "zone-a-0") for name in names}
    sources = {name: run_on(client, machine, "zone-a-0") for name, machine in machines.items()}

    with start_scheduler(plane, start_homeport(configured(tmp_path, policy="hard"))):
        cordon(client, "zone-a-0")
        targets = {name: target_of(client, name, number) for number, name in enumerate(names)}
        bound = wait_all_bound(plane, targets.values())
        assert {"zone-b-0", "zone-b-1"} == set(bound.values())
        assert {"zone-a-0"} == {home_of(client, name) for name in names}

        homes = {}
        for number, (name, target) in enumerate(targets.items()):
            node = bound[target]
            told(client, name, "zone-a-0", node, number)
            if number % 10 == 9:
                fail(client, name, "zone-a-0", node, number)
                homes[name] = "zone-a-0"
                continue
            succeed(client, name, "zone-a-0", node, number)
            client.delete("Pod", sources[name])
            homes[name] = node
        client.wait_for(
            lambda: {name: home_of(client, name) for name in names} == homes, what="the homes to be where machines run"
        )

        moved, failed = names[0], names[9]
        shut_down(client, moved, targets[moved])
        shut_down(client, failed, sources[failed])
        waiting = boot(client, machines[failed], "second")
        assert homes[moved] == client.wait_bound(boot(client, machines[moved], "second"))
        wait_refused(client, waiting, AWAY)
        cordon(client, "zone-a-0", cordoned=False)
        assert "zone-a-0" == client.wait_bound(waiting)


def report(client: Client, node: str, *, heard: bool) -> None:
    """What the node lifecycle controller writes of a kubelet that is not heard of, and takes back."""
    taints = [objects.taint(UNREACHABLE, effect=effect) for effect in ("NoSchedule", "NoExecute")]
    client.patch("Node", node, {"spec": {"taints": None if heard else taints}})
    ready = {"type": "Ready", "status": "True" if heard else "Unknown"}
    client.patch_status("Node", node, {"conditions": [ready]})


def messages(client: Client) -> dict[str, str]:
    """What the scheduler says of each pod."""
    found = {}
    for pod in client.list("Pod", "default"):
        said = [it.get("message", "") for it in pod["status"].get("conditions", []) if it["type"] == "PodScheduled"]
        found[pod["metadata"]["name"]] = "".join(said)
    return found


def all_refused(client: Client, pods: Collection[str]) -> bool:
    said = messages(client)
    return all(AWAY in said[pod] or GRACE in said[pod] for pod in pods)


@pytest.mark.long
def test_all_machines_of_an_outage_come_home(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """Four nodes fall silent, their machines are started again and wait beside two empty nodes, hard and in grace."""
    client = plane.client
    install_kubevirt(client)
    zones = make_zones(plane, {"zone-a": 4, "zone-b": 2})
    lost = [node for node, zone in zones.items() if zone == "zone-a"]
    homes = {f"vm{number:03}": lost[number % len(lost)] for number in range(REBOOTED)}
    machines = {
        name: lives(client, name, home, policy=("hard", "grace")[number % 2])
        for number, (name, home) in enumerate(homes.items())
    }
    before = {name: run_on(client, machine, homes[name]) for name, machine in machines.items()}

    with start_scheduler(plane, start_homeport(configured(tmp_path, policy="soft"))):
        for node in lost:
            report(client, node, heard=False)
        for name, pod in before.items():
            shut_down(client, name, pod)
        pods = {name: boot(client, machine, "second") for name, machine in machines.items()}
        client.wait_for(lambda: all_refused(client, pods.values()), timeout=60, what="all to wait")
        assert not any(client.node_of(pod) for pod in pods.values())
        for node in lost:
            report(client, node, heard=True)
        bound = wait_all_bound(plane, pods.values(), timeout=120)

    assert homes == {name: bound[pod] for name, pod in pods.items()}
    assert homes == {name: home_of(client, name) for name in machines}


# contested


def test_of_two_machines_for_the_last_slot_one_is_home(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """The other of them waits until there is room if it is hard, and goes elsewhere if it is soft."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2}, cpu="4")
    client.create_node(objects.node("spare", zone="zone-b", cpu="640", pods="1000"))
    owners = {
        policy: [lives(client, f"{policy}0{number}", home, policy=policy) for number in range(2)]
        for policy, home in (("hard", "zone-a-0"), ("soft", "zone-a-1"))
    }

    with start_scheduler(plane, start_homeport(configured(tmp_path, policy="off"))):
        hard, soft = ([launch(client, it, requests={"cpu": "3"}) for it in both] for both in owners.values())
        wait_all_bound(plane, soft)
        assert ["spare", "zone-a-1"] == sorted(map(client.node_of, soft))
        for number, pod in enumerate(soft):
            wait_home(client, f"soft0{number}", client.node_of(pod))

        client.wait_for(lambda: any(map(client.node_of, hard)), what="one of them to be home")
        (waits,) = (pod for pod in hard if not client.node_of(pod))
        (first,) = (pod for pod in hard if pod != waits)
        wait_refused(client, waits, NOT_HOME)
        assert ("zone-a-0", "") == (client.node_of(first), client.node_of(waits))
        shut_down(client, f"hard0{hard.index(first)}", first)
        assert "zone-a-0" == client.wait_bound(waits)
        assert ["zone-a-0"] * 2 == [home_of(client, f"hard0{number}") for number in range(2)]


def test_a_machine_evicts_at_home_and_nowhere_else(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """The victim elsewhere is the cheaper one; and on a third node nobody would have to go."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 1, "zone-c": 1}, cpu="4")
    for name, value in (("low", 10), ("middle", 20), ("high", 1000)):
        client.create(objects.priority_class(name, value))
    dear = fill(client, "zone-a-0", "3", "dear", priority_class_name="middle")
    cheap = fill(client, "zone-b-0", "3", "cheap", priority_class_name="low")
    machine = lives(client, "db01", "zone-a-0")
    homeport = start_homeport(configured(tmp_path, policy="hard"))

    with start_scheduler(plane, homeport):
        pod = launch(client, machine, requests={"cpu": "3"}, priority_class_name="high")
        assert "zone-a-0" == client.wait_bound(pod)

    assert client.find("Pod", dear) is None
    assert "zone-b-0" == client.node_of(cheap)


# people, and what they write


def test_who_moves_a_home_while_its_pod_is_being_bound_has_the_last_word(plane: ControlPlane, tmp_path: Path) -> None:
    """Homeport has sent the Binding, which has arrived, and has heard nothing of it, nor of the person."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 3})
    machines = {
        "given": client.create(objects.virtual_machine("given")),
        "moved": lives(client, "moved", "zone-a-0"),
        "released": lives(client, "released", "zone-a-0"),
    }
    words = {"given": "zone-a-2", "moved": "zone-a-2", "released": None}
    cordon(client, "zone-a-0")

    with FaultProxy(plane.server) as proxy:
        kubeconfig = kubeconfig_through(proxy, plane.kubeconfig, tmp_path / "through")
        with Homeport(kubeconfig, tmp_path, [configured(tmp_path, policy="soft")]) as homeport:
            for name, machine in machines.items():
                move_while_bound(client, homeport, proxy, machine, words[name])
                assert (words[name] or "") == home_of(client, name)
            client.wait_for(lambda: "HomeOverridden" in events_of(client, "moved"), what="the machine to be told")


def move_while_bound(client: Client, homeport: Homeport, proxy: FaultProxy, machine: Json, home: str | None) -> None:
    """Boot the machine, bind its pod, and write the home before Homeport knows that the pod is bound."""
    name = machine["metadata"]["name"]
    warm = client.create(objects.pod(f"warm-{name}"))
    client.wait_for(lambda: bind(homeport, warm, "zone-a-2") == "", what="a connection that is open")
    pod = client.get("Pod", boot(client, machine, "first"))
    client.wait_for(lambda: homeport.knows(pod["metadata"]["name"]), what="the pod to be known")
    with ThreadPoolExecutor() as pool, proxy.during(HELD_DOWN):
        binding = pool.submit(bind, homeport, pod, "zone-a-1")
        client.wait_bound(pod["metadata"]["name"])
        annotate(client, name, home)
        assert not binding.done()
    assert "" == binding.result()
    uid = pod["metadata"]["uid"]
    client.wait_for(lambda: annotations(client, name).get(HOME_POD) == uid, what="the pod to be heard")


HOSTILE: Final = {
    "short": "x" * 1000,
    "long": "x" * 10_000,
    "control": "zone-a-0\x00\x1b[2J\r\n\u202e",
    "lines": '\n{"event": "home made"}\n' * 100,
}


def test_hostile_values_keep_no_machine_from_its_place(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """Of policy, home and time. A home that cannot be is gone, a policy that is none is passed over and told.

    What is longer than 1 KiB is not even read.
    """
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    policies = {f"policy-{key}": lives(client, f"policy-{key}", "zone-b-0", policy=it) for key, it in HOSTILE.items()}
    homes = {f"home-{key}": lives(client, f"home-{key}", it) for key, it in HOSTILE.items()}
    times = {
        f"since-{number}": lives(client, f"since-{number}", "zone-b-0", policy="grace", home_since=it)
        for number, it in enumerate((*HOSTILE.values(), "away 9999-12-31T23:59:59Z", "away 0001-01-01T00:00:00Z"))
    }
    homeport = start_homeport(configured(tmp_path, policy="soft"))

    with start_scheduler(plane, homeport):
        pods = {name: boot(client, it, "first") for name, it in {**policies, **homes}.items()}
        bound = wait_all_bound(plane, pods.values())
        for name, pod in pods.items():
            wait_home(client, name, bound[pod])
        assert {"zone-b-0"} == {bound[pods[name]] for name in policies}

        cordon(client, "zone-b-0")
        client.wait_for(
            lambda: all(since(client, it).startswith("away 20") for it in times),
            what="times that can be to stand in place of those that cannot",
        )
        waiting = {name: boot(client, it, "first") for name, it in times.items()}
        for pod in waiting.values():
            wait_refused(client, pod, GRACE)
        cordon(client, "zone-b-0", cordoned=False)
        assert {"zone-b-0"} == set(wait_all_bound(plane, waiting.values()).values())

    assert "PolicyUnknown" in events_of(client, "policy-control")
    said = homeport.log().splitlines()
    assert [] == [line[:200] for line in said if len(line) > LONGEST_LINE or not line.isprintable()]
    named = [it["machine"] for it in lines(homeport, "policy unknown")]
    assert [f"VirtualMachine default/policy-{key}" for key in ("control", "short")] == sorted(named)
    assert {"consistent": True, "differences": []} == homeport.get("/api/v1/check")


# with other plugins


def test_a_home_that_spread_forbids_is_told_with_both_reasons(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """On the pod and by explain; released, the machine starts where spread lets it."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    client.create(objects.pod("web", labels=WEB, node_name="zone-a-0"))
    machine = lives(client, "web01", "zone-a-0")
    homeport = start_homeport(configured(tmp_path, policy="hard"))

    with start_scheduler(plane, homeport):
        pod = launch(client, machine, labels=WEB, spread_constraints=[objects.spread(WEB)])
        wait_refused(client, pod, NOT_HOME)
        wait_refused(client, pod, SPREAD)
        found = explained(homeport, pod)
        annotate(client, "web01", None)
        assert "zone-b-0" == client.wait_bound(pod)

    assert [] == found["feasible"]
    assert [
        (["zone-a-0"], [("PodTopologySpread", [SPREAD])]),
        (["zone-b-0"], [("StickyNode", [NOT_HOME])]),
    ] == [(group["nodes"], [(it["plugin"], it["reasons"]) for it in group["reasons"]]) for group in found["groups"]]
    (row,) = found["plugins"]["StickyNode"]["tables"][0]["rows"]
    assert ["VirtualMachine default/web01", "zone-a-0", "hard (default)"] == row[:3]
    move = "move the home or release it: set or remove homeport.dev/home on VirtualMachine default/web01"
    assert move in found["plugins"]["StickyNode"]["unblock"]
    assert found["plugins"]["PodTopologySpread"]["unblock"]


def explained(homeport: Homeport, pod: str) -> Json:
    asked = {"namespace": "default", "name": pod}
    answer = HTTP.post(f"{homeport.url}/api/v1/explain", json=asked).raise_for_status()
    return dict(answer.json())
