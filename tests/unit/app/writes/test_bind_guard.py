"""Every Binding is checked in the step that sends it, by what its own transaction passed down, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from math import inf
from typing import Any

import pytest

from app.framework.status import Status, error, unschedulable
from app.kube.api_errors import ApiError, ApiUnavailable, KubeError, UnknownOutcome
from app.kube.api_requests import PreSendCheck
from app.kube.core_v1 import Pod
from app.writes.batches import FEW, BindBatches
from app.writes.bind_guard import BLIND_SECONDS, BindClearance, BindGuard, NotBound, NotYet, passed_down
from tests.api.virtual import now, settle, virtual_time
from tests.builders import make_pod
from tests.unit.app.writes.leadership import Leadership

POD = make_pod("web-1")
OTHER = make_pod("web-2")
REJECTED = unschedulable("no longer possible")
SENT = "201"


class Words:
    """A check that says one thing after the other; ``None`` lets the Binding leave."""

    def __init__(self, *words: Exception | None) -> None:
        self._words = iter(words)
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        word = next(self._words)
        if word is not None:
            raise word


class Sender:
    """Sends after a while, as a connection is to be had first. ``sent``: what has left, ``tries``: what was to."""

    def __init__(self, guard: BindGuard | None = None) -> None:
        self.guard = guard or BindGuard()
        self.tries = 0
        self.sent: list[tuple[str, str]] = []

    async def __call__(self, pod: Pod = POD, node: str = "n1") -> str | Status:
        async def send(ask: PreSendCheck) -> str:
            self.tries += 1
            await asyncio.sleep(1.0)
            ask()
            self.sent.append((pod.name, node))
            return SENT

        try:
            return await self.guard.through(pod, node, send)
        except NotBound as held:
            return held.status


def passing(check: PreSendCheck, **more: Any) -> AbstractContextManager[BindClearance]:
    return passed_down(POD, "n1", check, **more)


class TestOutcome:
    """Where the sender of a Binding ends without an outcome, the transaction can see that its outcome is unclear."""

    @staticmethod
    async def through(passed: BindClearance, after: Exception | None, *, asks: int = 1) -> bool:
        async def send(ask: PreSendCheck) -> str:
            for _ in range(asks):
                ask()
            if after is not None:
                raise after
            return SENT

        with suppress(NotBound, KubeError, RuntimeError):
            await BindGuard().through(POD, "n1", send)
        return passed.unclear > 0

    @pytest.mark.parametrize(
        ("after", "unclear"),
        [
            pytest.param(None, False, id="an outcome"),
            pytest.param(ApiError(409), False, id="a refusal"),
            pytest.param(ApiUnavailable("no route"), False, id="never sent"),
            pytest.param(UnknownOutcome("no answer"), True, id="no answer"),
            pytest.param(RuntimeError("a fault of ours"), True, id="a fault"),
        ],
    )
    async def test_a_binding_that_has_left(self, after: Exception | None, unclear: bool) -> None:
        with passing(Words(None)) as passed:
            assert await self.through(passed, after) is unclear

    async def test_a_binding_that_was_held_back(self) -> None:
        with passing(Words(NotBound(error("no")))) as passed:
            assert not await self.through(passed, RuntimeError())

    async def test_a_binding_that_was_refused_and_is_held_back_the_second_time(self) -> None:
        """The credentials were too old."""
        with passing(Words(None, NotBound(error("no")))) as passed:
            assert not await self.through(passed, None, asks=2)

    @virtual_time
    async def test_a_sender_that_is_cancelled(self) -> None:
        async def send(ask: PreSendCheck) -> None:
            ask()
            await asyncio.Event().wait()

        with passing(Words(None)) as passed:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(BindGuard().through(POD, "n1", send), 1.0)
            assert passed.unclear

    async def test_a_second_binding_that_is_refused_says_nothing_of_the_first(self) -> None:
        with passing(Words(None, None)) as passed:
            await self.through(passed, UnknownOutcome("no answer"))

            assert await self.through(passed, ApiError(409))


class TestTheCheck:
    @virtual_time
    async def test_it_is_asked_when_nothing_is_left_to_wait_for(self) -> None:
        sender, at = Sender(), []
        started = now()

        with passing(lambda: at.append(now() - started)):
            assert SENT == await sender()

        assert ([1.0], [("web-1", "n1")]) == (at, sender.sent)

    @virtual_time
    async def test_it_is_asked_after_the_wait_for_others_to_leave_with(self) -> None:
        batches = BindBatches(0.5, now)
        sender, asked = Sender(BindGuard(batches=batches)), []
        for _ in range(FEW):
            await batches.wait_for_batch()
        started = now()

        with passing(lambda: asked.append(now() - started)):
            assert SENT == await sender()

        assert [1.25] == asked  # alone, half a window

    @virtual_time
    async def test_there_is_one_such_wait_for_a_transaction(self) -> None:
        """Who is sent back to wait, or sends once more after a conflict, has had its turn."""
        turns: list[float] = []

        class Turns(BindBatches):
            async def wait_for_batch(self, seconds_left: float = inf) -> None:
                turns.append(seconds_left)

        async def until() -> None: ...

        sender = Sender(BindGuard(batches=Turns(0.5, now)))
        with passing(Words(NotYet(until), None, None), seconds_left=lambda: 7.0):
            assert (SENT, SENT) == (await sender(), await sender())

        assert ([7.0], 3) == (turns, sender.tries)

    @virtual_time
    async def test_what_it_rejects_never_leaves(self) -> None:
        sender = Sender()

        with passing(Words(NotBound(REJECTED))):
            assert REJECTED == await sender()

        assert [] == sender.sent

    @virtual_time
    async def test_what_is_not_certain_waits_and_is_asked_about_again(self) -> None:
        """And the sender begins anew: it gave its connection back meanwhile."""
        sender, started, waited = Sender(), now(), []

        async def until() -> None:
            await asyncio.sleep(3.0)
            waited.append(now() - started)

        with passing(words := Words(NotYet(until), None)):
            assert SENT == await sender()

        assert ([4.0], 2, 2, 5.0) == (waited, words.asked, sender.tries, now() - started)

    @virtual_time
    async def test_what_cannot_become_certain_does_not_leave(self) -> None:
        async def until() -> None:
            raise NotBound(REJECTED)

        sender = Sender()
        with passing(Words(NotYet(until))):
            assert REJECTED == await sender()

        assert [] == sender.sent

    @virtual_time
    async def test_a_fault_comes_out_as_it_is(self) -> None:
        fault, sender = ZeroDivisionError("a plugin's"), Sender()

        with passing(Words(fault)), pytest.raises(ZeroDivisionError) as found:
            await sender()

        assert (fault, []) == (found.value, sender.sent)


class TestWhoseCheck:
    """It is found by nobody: it comes with the call, and is good for one pod and one node while its bind lasts."""

    @virtual_time
    async def test_without_one_nothing_leaves(self) -> None:
        sender = Sender()

        assert error('no bind of pod "default/web-1" is in flight here') == await sender()
        assert 0 == sender.tries

    @pytest.mark.parametrize(
        ("pod", "node", "said"),
        [
            pytest.param(OTHER, "n1", 'no bind of pod "default/web-2" is in flight here', id="of another pod"),
            pytest.param(
                make_pod("web-1", uid="anew"),
                "n1",
                'no bind of pod "default/web-1" is in flight here',
                id="of another pod of the same name",
            ),
            pytest.param(POD, "n2", 'decided on node "n1", not on "n2"', id="for another node"),
        ],
    )
    @virtual_time
    async def test_it_is_good_for_what_was_decided(self, pod: Pod, node: str, said: str) -> None:
        sender = Sender()
        with passing(words := Words(None)):
            assert error(said) == await sender(pod, node)
        assert (0, []) == (words.asked, sender.sent)

    @virtual_time
    async def test_the_same_pod_in_a_later_form_is_the_same(self) -> None:
        sender = Sender()

        with passing(Words(None)):
            assert SENT == await sender(make_pod("web-1", resource_version="9"))

    @virtual_time
    async def test_two_at_once_have_each_their_own(self) -> None:
        sender = Sender()

        async def bind(pod: Pod, word: Exception | None) -> str | Status:
            with passed_down(pod, "n1", Words(word)):
                return await sender(pod)

        found = await asyncio.gather(bind(POD, None), bind(OTHER, NotBound(REJECTED)))

        assert [SENT, REJECTED] == [*found]
        assert [("web-1", "n1")] == sender.sent

    @virtual_time
    async def test_it_goes_with_a_task_that_is_begun_within_the_bind(self) -> None:
        sender = Sender()

        with passing(Words(None)):
            assert SENT == await asyncio.create_task(sender())

    @virtual_time
    async def test_what_outlives_its_bind_does_not_leave(self) -> None:
        """A task that a plugin leaves behind: its pod was given up, and the picture no longer has it there."""
        sender = Sender()
        with passing(words := Words(None)):
            left_behind = asyncio.create_task(sender())
            await settle()

        assert error('the bind of pod "default/web-1" has ended') == await left_behind
        assert (0, []) == (words.asked, sender.sent)


class TestLeadership:
    @virtual_time
    async def test_who_may_not_bind_there_is_held_back_before_the_check(self) -> None:
        sender = Sender(BindGuard(Leadership("not")))

        with passing(words := Words(None)):
            assert error("not in default") == await sender()
        assert (0, []) == (words.asked, sender.sent)

    @virtual_time
    async def test_the_first_binding_of_a_scheduler_waits_until_the_lease_names_it(self) -> None:
        leadership = Leadership()
        sender = Sender(BindGuard(leadership))

        with passing(words := Words(None), seconds_left=lambda: 3.0):
            assert SENT == await sender()
        assert ([("default-scheduler", 3.0)], 1) == (leadership.asked, words.asked)

    @virtual_time
    async def test_one_that_the_lease_names_does_not_wait(self) -> None:
        leadership = Leadership()
        leadership.names.append("default-scheduler")
        sender = Sender(BindGuard(leadership))

        with passing(Words(None)):
            assert SENT == await sender()
        assert [] == leadership.asked

    @virtual_time
    async def test_one_that_the_lease_cannot_be_made_to_name_does_not_leave(self) -> None:
        sender = Sender(BindGuard(Leadership(problem="no lease")))

        with passing(Words(None)):
            assert error("no lease") == await sender()
        assert [] == sender.sent

    @pytest.mark.parametrize(
        ("opens", "said", "waited"),
        [
            pytest.param(0.0, "", 0.0, id="there is none"),
            pytest.param(3.0, "", 3.0, id="it ends in time"),
            pytest.param(60.0, "taking over", 5.0, id="it does not"),
        ],
    )
    @virtual_time
    async def test_a_bind_begins_after_a_take_over(self, opens: float, said: str, waited: float) -> None:
        leadership, started = Leadership(opens=opens), now()
        guard = BindGuard(leadership)

        assert (said, waited) == (await guard.admitted("default", 5.0), now() - started)
        assert ([("default", 5.0)] if opens else []) == leadership.admissions


class TestWatching:
    @staticmethod
    def watched(follows: Callable[[], bool]) -> Sender:
        return Sender(BindGuard(follows=follows))

    @virtual_time
    async def test_nothing_leaves_while_pods_are_not_watched(self) -> None:
        looks: Iterator[bool] = iter([False, False, True, True])
        sender = self.watched(lambda: next(looks))

        with passing(words := Words(None)):
            assert SENT == await sender()
        assert (2, 1) == (sender.tries, words.asked)

    @virtual_time
    async def test_a_watch_that_stays_away_holds_it_back(self) -> None:
        sender, started = self.watched(lambda: False), now()

        with passing(words := Words(None)):
            assert error("pods or nodes are not being watched at the moment") == await sender()
        assert (0, []) == (words.asked, sender.sent)
        assert 1.0 + BLIND_SECONDS == pytest.approx(now() - started)
