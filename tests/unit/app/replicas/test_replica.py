"""Taking over and handing over, in virtual time: what may be bound when, and where a verb goes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from app.cache.cluster import Cluster
from app.kube.core_decoding import decode_pod
from app.replicas.leader import Elector
from app.replicas.lease_record import SCHEDULERS
from app.replicas.replica import Replica, Route
from app.writes.fences import Fences
from tests.api.virtual import now, settle, virtual_time
from tests.apiserver import client_of
from tests.builders import JsonObject, encoded, pod_object
from tests.unit.app.replicas.test_leader import DEADLINE, LEASE, POST, RETRY, Leases, election

HERE = Route("here")


class Picture:
    """A feed that is current when the test says so."""

    def __init__(self) -> None:
        self.current = asyncio.Event()
        self.current.set()
        self.whole = asyncio.Event()
        self.whole.set()
        self.asked: list[float] = []

    async def complete(self) -> None:
        await self.whole.wait()

    async def catch_up(self) -> None:
        self.asked.append(now())
        await self.current.wait()

    def breaks_once(self, does: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        """Fails when it is called first."""
        faults = [ZeroDivisionError()]

        async def call() -> None:
            if faults:
                raise faults.pop()
            await does()

        return call

    def problem(self) -> str:
        return ""


class One:
    """A replica, and what it does its work on."""

    def __init__(
        self,
        name: str,
        server: Leases,
        known_to_others: Callable[[], Coroutine[Any, Any, None]] | None = None,
        ended: Callable[[], Awaitable[frozenset[str]]] | None = None,
    ) -> None:
        self.picture = Picture()
        self.cluster = Cluster()
        for found in server.all("Pod"):
            self.cluster.upsert_pod(decode_pod(encoded(found)))
        self.client = client_of(server)
        elector = Elector(
            self.client,
            election(name),
            namespace="here",
            name="homeport",
            retry_period=RETRY,
            attempt_seconds=DEADLINE / 2,
            rng=lambda: 1.0,
        )
        self.led: list[bool] = []
        self.seen = 0
        self.replica = Replica(
            elector,
            self.picture,
            Fences(self.client, self.cluster),
            post_seconds=POST,
            clock=now,
            on_change=self.led.append,
            on_leader=self._see,
            known_to_others=known_to_others or _at_once,
            ended=ended,
        )

    def _see(self) -> None:
        self.seen += 1


@asynccontextmanager
async def running(
    name: str, server: Leases, *, whole: bool = True, ended: Callable[[], Awaitable[frozenset[str]]] | None = None
) -> AsyncIterator[One]:
    one = One(name, server, ended=ended)
    if not whole:
        one.picture.whole.clear()
    await one.replica.start()
    try:
        yield one
    finally:
        await one.replica.stop()
        await one.client.aclose()


def held_by_another(*pods: JsonObject) -> Leases:
    """With a Lease that nobody renews any more."""
    server = Leases(*pods)
    server.hold("another", **{SCHEDULERS: "default-scheduler"})
    return server


def writes_to_pods(server: Leases) -> list[str]:
    return [it for it in server.log if "/pods/" in it]


async def _at_once() -> None:
    pass


async def _settled() -> bool:
    return True


async def until_it_may(one: One, namespace: str = "default", seconds: float = 100.0) -> float:
    started = now()
    while one.replica.may_bind(namespace):
        await asyncio.sleep(0.05)
        assert now() - started < seconds, one.replica.may_bind(namespace)
    return now() - started


@virtual_time
async def test_the_first_replica_leads_and_decides() -> None:
    async with running("a", Leases()) as a:
        assert (Route("nowhere"), "no replica leads") == (a.replica.route(binds=True), a.replica.problem())
        await until_it_may(a)
        await settle()

        assert (HERE, HERE, "", "leader") == (
            a.replica.route(binds=True),
            a.replica.route(binds=False),
            a.replica.problem(),
            a.replica.role(),
        )
        assert ([True], 1) == (a.led, a.seen)


@virtual_time
async def test_a_follower_says_where_the_leader_is() -> None:
    leases = Leases()
    async with running("a", leases) as a, running("b", leases) as b:
        await until_it_may(a)
        await asyncio.sleep(5)

        assert Route("there", "a:8888", "a") == b.replica.route(binds=True)
        assert ("", "follower of a at a:8888") == (b.replica.problem(), b.replica.role())
        assert "this replica does not lead" == b.replica.may_post(0.0) == b.replica.may_write()


@virtual_time
async def test_one_without_a_picture_leaves_the_lease_to_others() -> None:
    leases = Leases()
    async with running("a", leases, whole=False) as a:
        await asyncio.sleep(30)
        assert (None, "no replica leads") == (leases.holder, a.replica.problem())

        async with running("b", leases) as b:
            await until_it_may(b)
            assert leases.holder == "b"

        a.picture.whole.set()
        await until_it_may(a)


@virtual_time
async def test_so_does_one_that_others_cannot_speak_to() -> None:
    leases, known = Leases(), asyncio.Event()

    async def known_to_others() -> None:
        await known.wait()

    one = One("a", leases, known_to_others)
    await one.replica.start()
    await asyncio.sleep(3 * LEASE)
    assert (False, None) == (one.replica.leads, leases.lease)

    known.set()
    await until_it_may(one)
    await one.replica.stop()
    await one.client.aclose()


@virtual_time
async def test_a_part_that_ends_by_a_fault_begins_again() -> None:
    leases = Leases()
    async with running("a", leases) as a:
        await until_it_may(a)

        a.picture.catch_up = a.picture.breaks_once(a.picture.catch_up)  # type: ignore[method-assign]  # it breaks once
        leases.down = "lost"
        await asyncio.sleep(LEASE)
        assert not a.replica.leads
        leases.down = None

        await until_it_may(a)


@virtual_time
async def test_nothing_is_bound_before_the_former_leader_s_last_binding_had_its_time() -> None:
    leases = Leases()
    async with running("b", leases, whole=False) as b:
        async with running("a", leases) as a:
            await until_it_may(a)
            await asyncio.sleep(1)
        crashed = now()
        b.picture.whole.set()
        await until_it_may(b)

        assert LEASE + POST - RETRY <= now() - crashed <= LEASE + POST + 2 * RETRY
        assert b.picture.asked[0] >= crashed + LEASE + POST - RETRY
        assert b.led == [True]


@virtual_time
async def test_nothing_is_bound_on_a_picture_that_is_not_current() -> None:
    async with running("a", Leases()) as a:
        a.picture.current.clear()
        await asyncio.sleep(5)
        said = "taking over: the snapshot of the cluster is not known to be current"
        assert (said, said, HERE) == (a.replica.may_bind("default"), a.replica.problem(), a.replica.route(binds=True))
        assert said == await a.replica.admitted("default", 1.0)

        waiting = asyncio.create_task(a.replica.admitted("default", 60.0))
        await asyncio.sleep(1)
        a.picture.current.set()
        assert "" == await waiting


@virtual_time
async def test_no_pod_of_a_namespace_is_bound_before_all_that_waited_there_are_fenced_off() -> None:
    server = held_by_another(pod_object("waits"))
    server.fail("PATCH", "lost", "lost", "lost", "lost", "lost", "lost")
    async with running("a", server) as a:
        await until_it_may(a, "elsewhere")
        assert "taking over: waiting pods are not fenced off yet" == a.replica.may_bind("default")
        assert "" == a.replica.may_write()
        assert "" == await a.replica.admitted("default", 60.0)
        assert "" == a.replica.may_bind("default")


async def _another_ended() -> frozenset[str]:
    return frozenset({"another"})


@virtual_time
async def test_an_ended_process_of_this_pod_is_not_waited_for_and_everything_is_fenced_off_first() -> None:
    """Nothing is bound in any namespace, and verbs are decided meanwhile."""
    server = held_by_another(pod_object("waits"))
    server.fail("PATCH", "lost", "lost", "lost", "lost", "lost", "lost")
    async with running("a", server, whole=False, ended=_another_ended) as a:
        await asyncio.sleep(1)
        assert Route("soon") == a.replica.route(binds=False)
        a.picture.whole.set()
        await asyncio.sleep(0.5)
        assert ("", HERE) == (a.replica.problem(), a.replica.route(binds=True))
        assert "taking over: waiting pods are not fenced off yet" == a.replica.may_bind("elsewhere")
        await until_it_may(a, "elsewhere")
        assert "" == a.replica.may_bind("default")

    assert (True, "a") == (len(writes_to_pods(server)) > 6, server.holder)


@virtual_time
async def test_a_hand_over_settles_then_releases_and_is_taken_up_at_once() -> None:
    leases = Leases()
    async with running("a", leases) as a, running("b", leases) as b:
        await until_it_may(a)
        await asyncio.sleep(5)
        ended = asyncio.Event()
        routes = []

        async def settling() -> bool:
            routes.append((a.replica.route(binds=True).where, a.replica.route(binds=False).where))
            assert "" == a.replica.may_bind("default")
            await ended.wait()
            return True

        leaving = asyncio.create_task(a.replica.hand_over(settling))
        await asyncio.sleep(20)  # longer than the lease: it is renewed meanwhile
        assert (False, "a") == (b.replica.leads, leases.holder)
        ended.set()
        began = now()
        await leaving
        await until_it_may(b)

        assert now() - began < 0.5
        assert [("soon", "here")] == routes
        assert "this replica has handed over" == a.replica.may_post(0.0)
        assert Route("there", "b:8888", "b") == a.replica.route(binds=True)
        assert not b.replica.may_bind("default")


@virtual_time
async def test_binds_that_do_not_settle_leave_the_lease_to_expire() -> None:
    leases = Leases()
    async with running("a", leases) as a:
        await until_it_may(a)

        async def unsettled() -> bool:
            return False

        await a.replica.hand_over(unsettled)

    assert "a" == leases.holder


@virtual_time
async def test_so_does_a_take_over_that_is_not_complete() -> None:
    leases = held_by_another(pod_object("waits"))
    leases.fail("PATCH", *((500,) * 1000))
    async with running("a", leases) as a:
        await until_it_may(a, "elsewhere")

        await a.replica.hand_over(_settled)

    assert "a" == leases.holder


@virtual_time
async def test_who_took_over_in_good_order_and_is_told_to_end_before_it_decides_leaves_nothing_behind() -> None:
    """Both replicas are evicted, one a moment after the other: the next ones need not wait for a Lease to expire."""
    leases = Leases()
    async with running("a", leases) as a, running("b", leases) as b:
        await until_it_may(a)
        b.picture.current.clear()
        await a.replica.hand_over(_settled)
        await asyncio.sleep(0.5)
        assert (True, "b") == (b.replica.leads, leases.holder)
        assert "taking over" in b.replica.may_bind("default")

        await b.replica.hand_over(_settled)

    assert "" == leases.holder


@virtual_time
async def test_a_lease_that_was_taken_while_it_was_told_to_end_is_released_too() -> None:
    leases = Leases()
    async with running("a", leases) as a, running("b", leases) as b:
        await until_it_may(a)
        await asyncio.sleep(5)
        leases.answers_after = 0.2
        leaving = asyncio.create_task(a.replica.hand_over(_settled))
        while leases.holder != "b":  # noqa: ASYNC110  # a server in virtual time tells nobody
            await asyncio.sleep(0.01)
        assert not b.replica.leads
        await b.replica.hand_over(_settled)
        await leaving

    assert "" == leases.holder


@virtual_time
async def test_other_work_of_a_leader_waits_for_it_and_ends_with_it() -> None:
    leases = Leases()
    async with running("a", leases) as a:
        await a.replica.leading()
        lost = asyncio.ensure_future(a.replica.lost())
        await asyncio.sleep(60.0)
        assert not lost.done()
        leases.down = "lost"
        began = now()
        await lost

        assert (False, True, [True, False]) == (a.replica.leads, now() - began < LEASE + 1, a.led)


@virtual_time
async def test_the_lease_names_a_scheduler_before_its_first_binding_and_the_next_leader_fences_its_pods() -> None:
    leases = Leases(pod_object("waits", scheduler="s0"), pod_object("stranger"))
    async with running("b", leases) as b, running("a", leases) as a:
        await until_it_may(a if a.replica.leads else b)
        leader, other = (a, b) if a.replica.leads else (b, a)
        assert not leader.replica.is_remembered("s0")
        assert "" == await leader.replica.remember("s0", 5.0)
        assert leases.lease is not None
        assert ("s0", True) == (leases.lease["metadata"]["annotations"][SCHEDULERS], leader.replica.is_remembered("s0"))
        assert "this replica does not lead" == await other.replica.remember("s1", 5.0)
        await leader.replica.stop()
        await until_it_may(other)

    assert ["PATCH /api/v1/namespaces/default/pods/waits/status"] == writes_to_pods(leases)


@virtual_time
async def test_a_name_that_cannot_be_written_in_time_is_told() -> None:
    leases = Leases()
    async with running("a", leases) as a:
        await until_it_may(a)
        leases.down = "lost"
        began = now()

        assert "this pod's scheduler could not be recorded in the lease in time" == await a.replica.remember("s0", 3.0)
        assert 3.0 == now() - began
        leases.down = None
        assert "" == await a.replica.remember("s0", 10.0)
