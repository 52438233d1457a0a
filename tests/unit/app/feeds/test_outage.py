"""An API server that is away is told of once for all kinds, again each minute, and when it is back."""

from __future__ import annotations

from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from app.feeds.outage import Outage
from app.kube.api_errors import ApiError, ApiUnavailable

GONE: Final = ApiUnavailable("GET /api/v1/pods: connection refused")
WHERE: Final = "https://api.test:6443"


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


REFUSAL: Final = ApiError(429, "TooManyRequests", "later")


@pytest.mark.parametrize(
    ("story", "told"),
    [
        pytest.param("-Node -Pod 0.2 +Node +Pod 300", [], id="back at once"),
        pytest.param(
            "-Pod -Node 130 +Node 10 +Pod 5",
            [away(2.0, "Node", "Pod"), away(62.0, "Node", "Pod"), away(122.0, "Node", "Pod"), back(140.0)],
            id="two minutes",
        ),
        pytest.param("-Pod 3 +Pod 3 " * 2, [away(2.0, "Pod"), back(3.0)] * 2, id="two outages are two stories"),
        pytest.param("-Pod 0.6 +Pod 0.3 " * 10 + "5", [away(2.4, "Pod"), back(8.7)], id="back and away again is one"),
        pytest.param(
            "!Pod 3", [away(2.0, "Pod", cause=REFUSAL, event="API server refuses")], id="it answers, and refuses"
        ),
        pytest.param("-Pod +Node 3", [away(2.0, "Pod")], id="of one kind"),
    ],
)
def test_what_is_told(story: str, told: list[dict[str, Any]]) -> None:
    """Of a story: ``-`` a kind fails, ``!`` is refused, ``+`` is answered; seconds pass, and each is looked at."""
    now = 100.0
    outage = Outage(lambda: WHERE, clock=lambda: now)
    with capture_logs() as logs:
        for word in story.split():
            if word[0] in "-!":
                outage.failed(word[1:], GONE if word[0] == "-" else REFUSAL)
            elif word[0] == "+":
                outage.answered(word[1:])
            else:
                until = now + float(word)
                while now < until:
                    now = min(now + 1.0, until)
                    outage.look()

    assert told == logs
