"""An API server that is away is told of once for all kinds, again each minute, and when it is back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from app.feeds.outage import Outage
from app.kube.api_errors import ApiError, ApiUnavailable

GONE: Final = ApiUnavailable("GET /api/v1/pods: connection refused")
WHERE: Final = "https://api.test:6443"


class World:
    """Time passes by hand; the outage is looked at each second, as in its ``run``."""

    def __init__(self) -> None:
        self.now = 100.0
        self.outage = Outage(lambda: WHERE, clock=lambda: self.now)

    def fail(self, *kinds: str, cause: ApiError | ApiUnavailable = GONE) -> None:
        for kind in kinds:
            self.outage.failed(kind, cause)

    def answer(self, *kinds: str) -> None:
        for kind in kinds:
            self.outage.answered(kind)

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + 1.0, until)
            self.outage.look()


def away(seconds: float, *kinds: str, cause: object = GONE, event: str = "API server away") -> dict[str, Any]:
    return {
        "log_level": "warning",
        "event": event,
        "address": WHERE,
        "cause": str(cause),
        "kinds": list(kinds),
        "seconds": seconds,
    }


def back(seconds: float) -> dict[str, Any]:
    return {"log_level": "info", "event": "API server back", "address": WHERE, "seconds": seconds}


def blip(world: World) -> None:
    world.fail("Node", "Pod")
    world.now += 0.2
    world.answer("Node", "Pod")
    world.wait(300)


def long(world: World) -> None:
    world.fail("Pod", "Node")
    world.wait(130)
    world.answer("Node")
    world.wait(10)
    world.answer("Pod")
    world.wait(5)


def twice(world: World) -> None:
    for _ in range(2):
        world.fail("Pod")
        world.wait(3)
        world.answer("Pod")
        world.wait(3)


def flapping(world: World) -> None:
    """It takes connections and breaks them."""
    for _ in range(10):
        world.fail("Pod")
        world.wait(0.6)
        world.answer("Pod")
        world.now += 0.3
    world.wait(5)


def refusing(world: World) -> None:
    world.fail("Pod", cause=ApiError(429, "TooManyRequests", "later"))
    world.wait(3)


def one_of_two(world: World) -> None:
    world.fail("Pod")
    world.answer("Node")
    world.wait(3)


@pytest.mark.parametrize(
    ("story", "told"),
    [
        pytest.param(blip, [], id="back at once"),
        pytest.param(
            long,
            [away(2.0, "Node", "Pod"), away(62.0, "Node", "Pod"), away(122.0, "Node", "Pod"), back(140.0)],
            id="two minutes",
        ),
        pytest.param(twice, [away(2.0, "Pod"), back(3.0)] * 2, id="two outages are two stories"),
        pytest.param(flapping, [away(2.4, "Pod"), back(8.7)], id="back and away again is one"),
        pytest.param(
            refusing,
            [away(2.0, "Pod", cause=ApiError(429, "TooManyRequests", "later"), event="API server refuses")],
            id="it answers, and refuses",
        ),
        pytest.param(one_of_two, [away(2.0, "Pod")], id="of one kind"),
    ],
)
def test_what_is_told(story: Callable[[World], None], told: list[dict[str, Any]]) -> None:
    world = World()

    with capture_logs() as logs:
        story(world)

    assert told == logs
