"""What a person is told is bounded: of many domains the fullest, of many constraints the first."""

from app.framework.explanation import DomainLimit, Explanation
from tests.builders import HOSTNAME, ZONE, constraint, make_node, make_pod
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}


def explained(world: World, *constraints: object) -> Explanation:
    pod = make_pod("pending", labels=WEB, spread=list(constraints))  # type: ignore[arg-type]
    return world.framework.explain(pod, world.candidates())[SPREAD]


def test_of_many_domains_the_fullest_are_told() -> None:
    nodes = [make_node(f"n{number:04}") for number in range(1200)]
    crowd = [make_pod(f"web-{number}", labels=WEB, node="n1100") for number in range(9)]
    world = World(*nodes, *crowd, profile=only(SPREAD))
    world.filter(make_pod("first", labels=WEB, spread=[constraint(HOSTNAME, app="web")]))

    found = explained(world, constraint(HOSTNAME, app="web"))

    (table,) = found.tables
    assert (1000, True) == (len(table.rows), "n1100" in [row[0] for row in table.rows])
    assert f"DoNotSchedule over {HOSTNAME}, maxSkew 1, the fullest 1000 of 1200 domains" == table.title


def test_of_many_full_domains_ten_get_a_sentence() -> None:
    nodes = [make_node(f"n{number:02}") for number in range(20)]
    crowd = [make_pod(f"web-{number}", labels=WEB, node=f"n{number:02}") for number in range(15)]
    found = explained(World(*nodes, *crowd, profile=only(SPREAD)), constraint(HOSTNAME, app="web"))

    assert (11, f"{HOSTNAME}: so do 5 other domains") == (len(found.unblock), found.unblock[-1])


def test_of_many_constraints_the_first_are_told() -> None:
    world = World(make_node("n1", zone="z1"), profile=only(SPREAD))
    found = explained(world, *(constraint(ZONE if not number else f"k{number}", app="web") for number in range(10)))

    assert (8, "2 more hard constraints are not shown") == (len(found.tables), found.unblock[-1])


def test_limits_have_the_domains_of_each_constraint() -> None:
    nodes = [make_node(f"n{number}", zone=f"z{number % 2}") for number in range(3)]
    crowd = [make_pod(f"web-{number}", labels=WEB, node="n1") for number in range(2)]
    soft, few = constraint(HOSTNAME, soft=True, app="web"), constraint(skew=2, min_domains=3, app="web")
    zones, hosts = {"z0": 2, "z1": 1}, {"n0": 0, "n1": 2, "n2": 0}

    found = explained(World(*nodes, *crowd, profile=only(SPREAD)), constraint(app="web"), soft, few)

    assert (
        DomainLimit(ZONE, ("maxSkew 1",), {"z0": 0, "z1": 2}, frozenset({"z1"}), zones, 1, 0),
        DomainLimit(
            ZONE, ("maxSkew 2", "minDomains 3"), {"z0": 0, "z1": 2}, frozenset({"z1"}), zones, 2, 0, lacks_domains=True
        ),
        DomainLimit(HOSTNAME, ("maxSkew 1",), hosts, frozenset(), dict.fromkeys(hosts, 1), 1, 0, is_hard=False),
    ) == found.limits
