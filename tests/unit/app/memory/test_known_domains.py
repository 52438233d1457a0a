"""Which domains a profile knows although they have no node."""

from __future__ import annotations

from app.memory.known_domains import MOST_DOMAINS, MOST_KEYS, DomainTable
from tests.fakes import ManualClock

ZONE = "zone"


def test_declared_domains_without_a_node() -> None:
    table = DomainTable(ManualClock())
    table.of("p").declare({ZONE: ("c", "a", "b")}, None)

    assert table.of("p").missing(ZONE, {"a", "x"}) == ["b", "c"]
    assert (table.of("p").missing("rack", {"a"}), table.of("q").missing(ZONE, {"a"})) == ([], [])
    assert table.keys("p", (ZONE, "rack")) == [ZONE]
    assert (table.keys("q", (ZONE,)), table.is_used) == ((), True)


def test_domains_that_had_nodes_are_known_for_a_while() -> None:
    clock = ManualClock()
    table = DomainTable(clock)
    table.of("p").declare({}, 3600.0)
    table.see(ZONE, {"a", "b"})
    clock.now += 3600.0
    table.see(ZONE, {"a"})

    assert table.of("p").missing(ZONE, {"a"}) == ["b"]
    clock.now += 1.0
    assert table.of("p").missing(ZONE, {"a"}) == []
    assert table.keys("p", (ZONE, "rack")) == (ZONE, "rack")


def test_the_memory_is_bounded_and_keeps_what_is_there() -> None:
    clock = ManualClock()
    table = DomainTable(clock)
    table.of("p").declare({}, 3600.0)
    table.see(ZONE, [f"old-{number}" for number in range(MOST_DOMAINS)])
    clock.now += 1.0
    table.see(ZONE, [f"new-{number}" for number in range(MOST_DOMAINS - 1)])
    for number in range(MOST_KEYS + 5):
        table.see(f"key-{number}", {"a"})

    assert len(table.of("p").missing(ZONE, ())) == MOST_DOMAINS
    assert len([it for it in table.of("p").missing(ZONE, ()) if it.startswith("new")]) == MOST_DOMAINS - 1
    assert [table.of("p").missing(f"key-{MOST_KEYS + it}", ()) for it in (-2, -1, 0)] == [["a"], [], []]
