"""A bind that comes during a take-over waits for it, within the time its caller has."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.verbs.leader_only import LeaderOnlyBind
from app.verbs.outcome import Answer, VerbFailure
from tests.api.small import binding
from tests.api.virtual import now, virtual_time

BODY = json.dumps(binding()).encode()


class Admission:
    """Opens ``after`` so many seconds."""

    def __init__(self, after: float) -> None:
        self._opens = now() + after
        self.asked: list[str] = []

    def may_bind(self, namespace: str) -> str:
        return "" if now() >= self._opens else "taking over"

    async def admitted(self, namespace: str, seconds: float) -> str:
        self.asked.append(namespace)
        await asyncio.sleep(min(seconds, self._opens - now()))
        return self.may_bind(namespace)


def verb(admission: Admission, takes: float = 0.0) -> LeaderOnlyBind:
    async def bind(_body: bytes | memoryview) -> Answer:
        await asyncio.sleep(takes)
        return Answer(b"{}", "bound")

    return LeaderOnlyBind(bind, admission, now, time_limit=5.0)


@virtual_time
async def test_where_all_is_well_nobody_waits() -> None:
    admission = Admission(0.0)

    assert Answer(b"{}", "bound") == await verb(admission)(BODY)
    assert [] == admission.asked


@virtual_time
async def test_it_waits_for_a_take_over() -> None:
    admission, started = Admission(3.0), now()

    assert Answer(b"{}", "bound") == await verb(admission)(BODY)
    assert (3.0, ["default"]) == (now() - started, admission.asked)


@pytest.mark.parametrize(
    ("after", "takes", "outcome", "said", "waited"),
    [
        pytest.param(60.0, 0.0, "no_leader", "homeport: taking over", 4.5, id="one that takes too long"),
        pytest.param(3.0, 3.0, "out_of_time", "homeport: the bind has not settled in time", 5.0, id="both together do"),
    ],
)
def test_not_for_ever(after: float, takes: float, outcome: str, said: str, waited: float) -> None:
    @virtual_time
    async def run() -> None:
        started = now()
        with pytest.raises(VerbFailure) as failed:
            await verb(Admission(after), takes)(BODY)
        assert (outcome, said, waited) == (failed.value.outcome, failed.value.message, now() - started)

    run()


@virtual_time
async def test_what_cannot_be_read_is_left_to_the_verb() -> None:
    assert Answer(b"{}", "bound") == await verb(Admission(60.0))(b"{")
