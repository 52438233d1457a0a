"""When a constraint becomes soft for a waiting pod, and who sees it."""

from __future__ import annotations

from app.memory.fallbacks import FallbackTable, assumed_relaxed
from tests.builders import make_pod

POD = make_pod("web-1")


def table(after: float = 600.0) -> FallbackTable:
    found = FallbackTable()
    found.of("p").enable(after)
    return found


def test_a_constraint_is_soft_once_it_alone_kept_the_pod_waiting_for_long() -> None:
    found = table()

    assert [found.judged(POD, "p", {"zone"}, now) for now in (100.0, 400.0, 699.0, 700.0, 800.0)] == [
        "",
        "",
        "",
        "zone",
        "",
    ]
    assert found.of("p").relaxed(POD) == {"zone"}
    assert found.of("p").relaxed(make_pod("other")) == frozenset()


def test_the_time_counts_anew_after_a_break() -> None:
    found = table()
    found.judged(POD, "p", {"zone"}, 0.0)
    found.judged(POD, "p", (), 300.0)

    assert [found.judged(POD, "p", {"zone"}, now) for now in (301.0, 900.0, 901.0)] == ["", "", "zone"]


def test_one_constraint_at_a_time_and_the_longest_first() -> None:
    found = table()
    found.judged(POD, "p", {"zone"}, 0.0)
    found.judged(POD, "p", {"zone", "host"}, 10.0)

    assert found.judged(POD, "p", {"zone", "host"}, 700.0) == "zone"
    assert found.judged(POD, "p", {"host"}, 800.0) == "host"
    assert found.of("p").relaxed(POD) == {"host"}


def test_a_constraint_that_no_longer_blocks_alone_is_hard_again() -> None:
    found = table()
    found.judged(POD, "p", {"zone"}, 0.0)
    found.judged(POD, "p", {"zone"}, 600.0)
    found.judged(POD, "p", (), 601.0)

    assert (found.of("p").relaxed(POD), found.has(POD.uid)) == (frozenset(), False)


def test_without_current_data_nothing_is_soft() -> None:
    found = table()
    found.judged(POD, "p", {"zone"}, 0.0)
    found.judged(POD, "p", {"zone"}, 600.0)

    assert found.refresh(lambda _key, _uid: False) == []
    assert (found.of("p").relaxed(POD), found.has_relaxed(POD.uid)) == (frozenset(), True)
    assert found.refresh(lambda _key, _uid: True) == [POD.key]
    assert found.of("p").relaxed(POD) == {"zone"}
    assert found.refresh(lambda _key, _uid: None) == []
    assert not found.has(POD.uid)


def test_a_trial_sees_its_own_keys_and_nothing_else() -> None:
    found = table()
    found.judged(POD, "p", {"zone"}, 0.0)
    found.judged(POD, "p", {"zone"}, 600.0)

    with assumed_relaxed():
        assert found.of("p").relaxed(POD) == frozenset()
    with assumed_relaxed(("host",)):
        assert found.of("p").relaxed(make_pod("other")) == {"host"}
    assert found.of("p").relaxed(POD) == {"zone"}


def test_the_next_end_is_that_of_the_constraint_that_blocks_longest() -> None:
    found = table()
    assert found.next_end(POD, "p") is None
    found.judged(POD, "p", {"zone"}, 5.0)
    found.judged(POD, "p", {"zone", "host"}, 9.0)
    assert found.next_end(POD, "p") == 605.0
    found.judged(POD, "p", {"zone"}, 605.0)
    assert found.next_end(POD, "p") is None


def test_a_profile_without_the_option_relaxes_nothing() -> None:
    found = table()

    assert (found.after("q"), found.judged(POD, "q", {"zone"}, 0.0), found.has(POD.uid)) == (None, "", False)
