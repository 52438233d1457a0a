"""Events are few, told in the background, counted where they are dropped, and never in anybody's way."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from structlog.testing import capture_logs

from app.framework.events import EventType, Reference
from app.writes import event_queue, events
from app.writes.events import ApiRecorder
from tests.api.virtual import now, settle, virtual_time
from tests.apiserver import client_of
from tests.builders import JsonObject

DB = Reference("kubevirt.io/v1", "VirtualMachine", "shop", "db", "uid-db")
NODE = Reference("v1", "Node", "", "n1")
BEGAN = datetime(2026, 11, 22, tzinfo=UTC)
PATH = "/apis/events.k8s.io/v1/namespaces/shop/events"


class EventServer:
    """Keeps Events by path. ``answers`` are given to the next requests instead, ``down`` to all: 0 is no answer.

    Nobody answers for paths that begin with ``silent``.
    """

    def __init__(self) -> None:
        self.found: dict[str, JsonObject] = {}
        self.log: list[tuple[float, str]] = []
        self.answers: list[int] = []
        self.message = "told to"
        self.down: int | None = None
        self.arrives_all_the_same = False
        self.silent = "nowhere"

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.log.append((now() - 1000.0, request.method))
        if request.url.path.startswith(self.silent):
            raise httpx.ReadTimeout("no answer")
        answer = self.down if self.down is not None else self.answers.pop(0) if self.answers else None
        if answer is None or self.arrives_all_the_same:
            done = self._carry_out(request)
            if answer is None:
                return done
        if answer == 0:
            raise httpx.ReadTimeout("no answer")
        return _status(answer, self.message)

    def _carry_out(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if request.method == "POST":
            path = f"{request.url.path}/{body['metadata']['name']}"
            if path in self.found:
                return _status(409, "there")
            self.found[path] = body
            return httpx.Response(201, json=body)
        if request.url.path not in self.found:
            return _status(404, "gone")
        self.found[request.url.path] |= body
        return httpx.Response(200, json=self.found[request.url.path])

    @property
    def methods(self) -> list[str]:
        return [method for _, method in self.log]

    @property
    def only(self) -> JsonObject:
        (found,) = self.found.values()
        return found


class Telling:
    """A recorder at work, the server, and what became of each Event."""

    def __init__(self, server: EventServer) -> None:
        self.server = server
        self.counted: Counter[str] = Counter()
        self.leads = True
        self.recorder = ApiRecorder(
            client_of(server),
            "homeport-here",
            now,
            self._count,
            leads=lambda: self.leads,
            wall=lambda: BEGAN + timedelta(seconds=now() - 1000.0),
        )

    def _count(self, result: str) -> None:
        self.counted[result] += 1

    def tell(
        self,
        reason: str = "HomeMade",
        *,
        regarding: Reference = DB,
        related: Reference | None = NODE,
        kind: EventType = "Normal",
        note: str = "n1 is the home",
    ) -> None:
        self.recorder.event(regarding, related, kind, reason, "Binding", note)


@asynccontextmanager
async def telling() -> AsyncIterator[Telling]:
    found = Telling(EventServer())
    found.recorder.start()
    await settle()
    yield found
    await found.recorder.stop()


def _status(code: int, message: str) -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "code": code, "message": message})


class TestFirst:
    @virtual_time
    async def test_all_that_the_api_server_asks_for(self) -> None:
        async with telling() as it:
            it.tell(kind="Warning", note="ä" * 600)
            await asyncio.sleep(1)

        ((path, found),) = it.server.found.items()
        assert path.startswith(f"{PATH}/db.")
        assert int(found["metadata"].pop("name").removeprefix("db."), 16) > 0
        assert {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "shop"},
            "eventTime": "2026-11-22T00:00:00.000000Z",
            "type": "Warning",
            "action": "Binding",
            "reason": "HomeMade",
            "note": "ä" * 512,
            "regarding": {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "namespace": "shop",
                "name": "db",
                "uid": "uid-db",
            },
            "related": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
            "reportingController": "homeport.dev/homeport",
            "reportingInstance": "homeport-here",
        } == found
        assert {"written": 1} == it.counted

    @virtual_time
    async def test_of_what_is_in_no_namespace_it_is_in_default_and_long_names_fit(self) -> None:
        async with telling() as it:
            it.tell(regarding=Reference("v1", "Node", "", "n" * 253), related=None)
            await asyncio.sleep(1)

        ((path, found),) = it.server.found.items()
        assert path.startswith("/apis/events.k8s.io/v1/namespaces/default/events/nnn")
        assert len(found["metadata"]["name"]) <= 253
        assert "related" not in found

    @virtual_time
    async def test_a_reference_of_any_length_is_cut(self) -> None:
        huge = "x" * 200_000
        async with telling() as it:
            it.tell(regarding=Reference(huge, huge, huge, huge, huge), related=Reference(huge, huge, huge, huge, huge))
            await asyncio.sleep(1)
            (same,) = it.recorder._series

        lengths = {"apiVersion": 317, "kind": 63, "namespace": 63, "name": 253, "uid": 128}
        assert [lengths] * 2 == [
            {field: len(text) for field, text in it.server.only[key].items()} for key in ("regarding", "related")
        ]
        assert "x" * 63 == it.server.only["metadata"]["namespace"]
        assert ["x" * 253] * 2 == [found.name for found in same if isinstance(found, Reference)]

    @virtual_time
    async def test_who_does_not_lead_tells_nothing(self) -> None:
        async with telling() as it:
            it.leads = False
            it.tell()
            await asyncio.sleep(1)

        assert ([], {}) == (it.server.methods, it.counted)


class TestSeries:
    @virtual_time
    async def test_the_second_changes_it_and_later_ones_cost_nothing_until_it_is_quiet(self) -> None:
        async with telling() as it:
            for _ in range(5):
                it.tell()
                await asyncio.sleep(10)
            assert ["POST", "PATCH"] == it.server.methods
            assert {"count": 2, "lastObservedTime": "2026-11-22T00:00:10.000000Z"} == it.server.only["series"]
            await asyncio.sleep(events.IDLE_SECONDS + events.LOOK_SECONDS)

        assert ["POST", "PATCH", "PATCH"] == it.server.methods
        assert {"count": 5, "lastObservedTime": "2026-11-22T00:00:40.000000Z"} == it.server.only["series"]
        assert {"written": 1, "repeated": 2} == it.counted

    @virtual_time
    async def test_one_that_does_not_end_is_written_every_half_hour(self) -> None:
        async with telling() as it:
            for _ in range(75):
                it.tell()
                await asyncio.sleep(60)
            assert ["POST", "PATCH", "PATCH", "PATCH"] == it.server.methods

    @virtual_time
    async def test_one_that_comes_at_once_is_written_in_one(self) -> None:
        async with telling() as it:
            for _ in range(3):
                it.tell()
            await asyncio.sleep(1)

        assert (["POST"], 3) == (it.server.methods, it.server.only["series"]["count"])

    @virtual_time
    async def test_an_event_that_the_server_has_let_go_is_made_anew(self) -> None:
        async with telling() as it:
            it.tell()
            await asyncio.sleep(1)
            it.server.found.clear()
            it.tell()
            await asyncio.sleep(1)

        assert (["POST", "PATCH", "POST"], 2) == (it.server.methods, it.server.only["series"]["count"])

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param({"reason": "HomeMoved"}, id="reason"),
            pytest.param({"kind": "Warning"}, id="type"),
            pytest.param({"related": None}, id="related"),
            pytest.param({"regarding": NODE}, id="regarding"),
        ],
    )
    @virtual_time
    async def test_what_makes_two_events(self, other: dict[str, str]) -> None:
        async with telling() as it:
            it.tell()
            it.tell(**other)  # type: ignore[arg-type]  # as a table holds them
            it.tell(note="another note makes none")
            await asyncio.sleep(1)

        assert 2 == len(it.server.found)

    @virtual_time
    async def test_after_a_rest_it_is_a_new_one(self) -> None:
        async with telling() as it:
            it.tell()
            await asyncio.sleep(events.IDLE_SECONDS - events.LOOK_SECONDS / 2)
            it.tell()
            await asyncio.sleep(events.IDLE_SECONDS)
            it.tell()
            await asyncio.sleep(1)

        assert (["POST", "PATCH", "POST"], 2) == (it.server.methods, len(it.server.found))


class TestBounds:
    @virtual_time
    async def test_an_object_has_a_budget_and_others_have_theirs(self) -> None:
        async with telling() as it:
            for number in range(30):
                it.tell(f"Reason{number}")
            it.tell("Reason0", regarding=NODE)
            await asyncio.sleep(5)
            assert {"written": event_queue.AT_ONCE + 1, "over_budget": 20} == it.counted
            await asyncio.sleep(event_queue.REFILL_SECONDS)
            it.tell("Later")
            it.tell("AndMore")
            await asyncio.sleep(1)

        assert {"written": event_queue.AT_ONCE + 2, "over_budget": 21} == it.counted

    @virtual_time
    async def test_the_queue_is_bounded_and_written_at_a_pace(self) -> None:
        async with telling() as it:
            it.server.down = None
            for number in range(event_queue.MOST_QUEUED + 50):
                it.tell(regarding=Reference("v1", "Pod", "shop", f"p{number}", f"u{number}"))
            assert {"overflow": 50} == it.counted
            await asyncio.sleep(1.001)
            assert 21 == len(it.server.log)
            await asyncio.sleep(event_queue.MOST_QUEUED * events.WRITE_INTERVAL_SECONDS)

        assert {"overflow": 50, "written": event_queue.MOST_QUEUED} == it.counted

    @virtual_time
    async def test_namespaces_take_turns_and_the_one_that_has_most_in_the_queue_gives_room(self) -> None:
        """A tenant with 4,000 objects fills the queue; two others still tell of theirs, and soon."""

        def tell(namespace: str, count: int) -> None:
            for number in range(count):
                it.tell(regarding=Reference("v1", "Pod", namespace, f"p{number}", f"{namespace}-{number}"))

        def written(namespace: str) -> int:
            return sum(f"/namespaces/{namespace}/" in path for path in it.server.found)

        async with telling() as it:
            tell("loud", 4000)
            assert {"overflow": 3000} == it.counted
            tell("shop", 1109)
            tell("quiet", 3)
            await asyncio.sleep(1.0)
            assert written("quiet") == 3
            await asyncio.sleep(event_queue.MOST_QUEUED * events.WRITE_INTERVAL_SECONDS)

            assert (written("quiet"), written("shop") >= 498, written("loud") >= 498) == (3, True, True)
            assert {"overflow": 4112, "written": event_queue.MOST_QUEUED} == it.counted

    @virtual_time
    async def test_room_is_taken_from_what_was_put_off_too(self) -> None:
        """And the queue is in order afterwards."""
        async with telling() as it:
            it.server.silent = "/apis/events.k8s.io/v1/namespaces/loud"
            for number in range(event_queue.MOST_QUEUED):
                it.tell(regarding=Reference("v1", "Pod", "loud", f"p{number}", f"u{number}"))
            await asyncio.sleep(event_queue.MOST_QUEUED * events.WRITE_INTERVAL_SECONDS)
            for number in range(9):
                it.tell(regarding=Reference("v1", "Pod", "shop", f"p{number}", f"v{number}"))
            await asyncio.sleep(60)

            assert {"overflow": 9, "written": 9} == {name: it.counted[name] for name in ("overflow", "written")}
            assert len(it.recorder._queue) <= event_queue.MOST_QUEUED

    @virtual_time
    async def test_memory_is_bounded(self) -> None:
        async with telling() as it:
            it.server.down = 0
            for number in range(3 * events._MOST_SERIES):
                it.tell(regarding=Reference("v1", "Pod", "shop", f"p{number}", f"u{number}"))
            assert len(it.recorder._budgets) == events._MOST_OBJECTS
            assert len(it.recorder._series) <= events._MOST_SERIES
            assert len(it.recorder._queue) <= event_queue.MOST_QUEUED

    @virtual_time
    async def test_the_end_does_not_wait_for_a_server_that_is_silent(self) -> None:
        async with telling() as it:
            it.server.down = 0
            for number in range(100):
                it.tell(regarding=Reference("v1", "Pod", "shop", f"p{number}", f"u{number}"))
            await asyncio.sleep(1)
            began = now()

        assert now() - began <= events.FLUSH_SECONDS

    @virtual_time
    async def test_the_end_waits_for_no_more_than_what_is_queued(self) -> None:
        async with telling() as it:
            it.tell()
            began = now()

        assert (["POST"], True) == (it.server.methods, now() - began < 0.1)


class TestFaults:
    @virtual_time
    async def test_no_answer_is_asked_again_and_an_event_is_there_once(self) -> None:
        async with telling() as it:
            it.server.answers, it.server.arrives_all_the_same = [0, 503], True
            it.tell()
            await asyncio.sleep(10)

        assert [(0.0, "POST"), (1.0, "POST"), (3.0, "POST")] == it.server.log
        assert (1, {"written": 1}) == (len(it.server.found), it.counted)

    @virtual_time
    async def test_a_namespace_that_does_not_answer_holds_up_no_other(self) -> None:
        async with telling() as it:
            it.server.silent = PATH
            it.tell()
            for number in range(20):
                it.tell(regarding=Reference("v1", "Pod", "other", f"p{number}", f"u{number}"))
            await asyncio.sleep(1.5)
            assert {"written": 20} == it.counted
            await asyncio.sleep(200)
            assert {"written": 20, "failed": 1} == it.counted
            assert 12 + 20 == len(it.server.log)

        assert 20 == len(it.server.found)

    @virtual_time
    async def test_one_that_counts_up_while_nobody_answers_waits_all_the_same(self) -> None:
        async with telling() as it:
            attempt, told = it.recorder._attempt, [False]

            async def slow(series: event_queue.Series) -> None:
                if not told[0]:
                    told[0] = True
                    it.tell()
                await attempt(series)

            it.recorder._attempt = slow  # type: ignore[method-assign]
            it.server.answers = [0]
            it.tell()
            await asyncio.sleep(5)

        assert [(0.0, "POST"), (1.0, "POST")] == it.server.log
        assert ({"written": 1}, 2) == (it.counted, it.server.only["series"]["count"])

    @virtual_time
    async def test_after_twelve_attempts_it_is_given_up_and_the_next_one_is_tried(self) -> None:
        async with telling() as it:
            it.server.down = 503
            it.tell()
            await asyncio.sleep(200)
            assert (12, {"failed": 1}) == (len(it.server.log), it.counted)
            it.server.down = None
            it.tell()
            await asyncio.sleep(1)

        assert {"failed": 1, "written": 1} == it.counted

    @virtual_time
    async def test_without_the_right_it_is_said_once_and_asked_rarely(self) -> None:
        async with telling() as it:
            it.server.down = 403
            with capture_logs() as said:
                for number in range(20):
                    it.tell(regarding=Reference("v1", "Pod", "shop", f"p{number}", f"u{number}"))
                await asyncio.sleep(10)
                assert (1, {"refused": 20}) == (len(it.server.log), it.counted)
                await asyncio.sleep(events.FORBIDDEN_SECONDS)
                it.tell()
                await asyncio.sleep(1)
        assert 2 == len(it.server.log)
        assert ["events are not written: creating them is forbidden, see homeport rbac"] == [
            line["event"] for line in said if line["log_level"] == "warning"
        ]

    @virtual_time
    async def test_a_namespace_that_ends_bars_nobody_else(self) -> None:
        async with telling() as it:
            it.server.answers = [403]
            it.server.message = "unable to create new content in namespace shop because it is being terminated"
            with capture_logs() as said:
                it.tell()
                it.tell(regarding=NODE)
                await asyncio.sleep(1)

        assert {"refused": 1, "written": 1} == it.counted
        assert [] == [line for line in said if line["log_level"] == "warning"]

    @virtual_time
    async def test_a_fault_of_ours_silences_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with telling() as it:
            monkeypatch.setattr(ApiRecorder, "_attempt", None)
            it.tell()
            await asyncio.sleep(1)
            monkeypatch.undo()
            it.tell("Another")
            await asyncio.sleep(1)

        assert {"failed": 1, "written": 1} == it.counted
