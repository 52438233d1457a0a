"""What the watch shows settles a bind as well as an answer does."""

from __future__ import annotations

from tests.api.virtual import settle, virtual_time
from tests.unit.app.verbs.bench import BOUND, Bench, web, zones


@virtual_time
async def test_the_watch_that_shows_a_bound_wakes_b() -> None:
    """The answer to A's POST is lost on the way, but the watch shows A bound: B need not wait for the answer."""
    bench = Bench(*zones(), web("web-1", "n1"), web("web-2", "n2"), web("a"), web("b"))
    await bench.start("a", "n3")
    b = await bench.start("b", "n1")

    bench.show_bound("a", "n3")
    await settle()

    assert ("b", "n1") in bench.binder.under_way
    bench.binder.answer("b")
    assert await b == BOUND


@virtual_time
async def test_a_deletion_in_flight_wakes_b() -> None:
    """A is deleted while its bind is under way; then z3 stays empty, and B is refused at once instead of in 5 s."""
    bench = Bench(*zones(), web("web-1", "n1"), web("web-2", "n2"), web("a"), web("b"))
    await bench.start("a", "n3")
    b = await bench.start("b", "n1")

    bench.cluster.delete_pod(("default", "a"))
    await settle()

    assert b.done()
    assert (await b)[0] == "bind_conflict"
