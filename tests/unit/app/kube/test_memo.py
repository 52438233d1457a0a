"""What was parsed lately is remembered, of so many bytes together."""

from app.kube.memo import MISSING, Memo, Newest


def test_what_was_put_in_is_found() -> None:
    memo = Memo[str, int | None](100)
    memo.put("a", 1, 2)
    memo.put("nothing", None, 2)

    assert (1, None, True) == (memo.get("a"), memo.get("nothing"), memo.get("b") is MISSING)


def test_what_is_used_stays_and_the_rest_goes() -> None:
    memo = Memo[int, int](160)
    for number in range(100):
        memo.put(number, number, 10)
        memo.get(0)

    assert (0, 99, True) == (memo.get(0), memo.get(99), memo.get(50) is MISSING)


def test_what_is_kept_is_bounded_by_weight() -> None:
    memo = Memo[int, int](1600)
    for number in range(1000):
        memo.put(number, number, 10)

    assert 80 <= len(memo) <= 160


def test_a_heavy_one_does_not_cost_the_others_their_place() -> None:
    memo = Memo[str, int](160)
    memo.put("a", 1, 10)
    for number in range(100):
        memo.put(f"heavy-{number}", number, 11)

    assert (1, 1) == (memo.get("a"), len(memo))


def test_of_too_many_the_one_that_was_put_longest_ago_is_forgotten() -> None:
    newest = Newest[str, int](2)

    assert [None, None, None, ("b", 2)] == [newest.put(*it) for it in (("a", 1), ("b", 2), ("a", 3), ("c", 4))]
    assert [("a", 3), ("c", 4)] == list(newest.items())
