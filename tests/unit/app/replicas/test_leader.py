"""The election as its participants play it, in virtual time: another leads only once the first no longer may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from app.replicas.leader import Elector
from app.replicas.lease import Election, post_seconds
from app.replicas.lease_record import ADDRESS
from app.writes.callers import NO_CALLERS
from tests.api.virtual import now, virtual_time
from tests.apiserver import ApiServer, client_of
from tests.builders import JsonObject

LEASE, DEADLINE, RETRY = 15.0, 10.0, 2.0
POST = post_seconds(LEASE)


def election(name: str, clock: Callable[[], float] = now) -> Election:
    return Election(
        name, f"{name}:8888", lease_duration=LEASE, renew_deadline=DEADLINE, retry_period=RETRY, clock=clock
    )


class Leases(ApiServer):
    """The API server, asked after the one Lease that is elected by."""

    @property
    def lease(self) -> JsonObject | None:
        return self.get("Lease", "homeport", "here")

    @property
    def holder(self) -> str | None:
        return None if self.lease is None else self.lease["spec"]["holderIdentity"]

    def hold(self, name: str, **annotations: str) -> None:
        """Somebody writes into the Lease that ``name`` holds it."""
        metadata = {"namespace": "here", "name": "homeport", "annotations": annotations}
        spec = {"holderIdentity": name, "leaseDurationSeconds": int(LEASE)}
        self.put({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})

    def remove(self) -> None:
        """Somebody deletes the Lease."""
        self.delete("coordination.k8s.io/v1 Lease", ("here", "homeport"))


@asynccontextmanager
async def candidate(server: Leases, name: str) -> AsyncIterator[Elector]:
    """A participant for the length of the block; leaving it is a crash."""
    async with client_of(server) as client:
        elector = Elector(
            client,
            election(name),
            namespace="here",
            name="homeport",
            retry_period=RETRY,
            attempt_seconds=DEADLINE / 2,
            rng=lambda: 1.0,
        )
        running = asyncio.create_task(elector.run())
        try:
            yield elector
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def until(elector: Elector, holds: Callable[[], bool]) -> float:
    """Wait for something to become true; returns how long it took in virtual seconds."""
    started = now()
    while not holds():
        await elector.changed(0.1)
        assert now() - started < 100, "it never does"
    return now() - started


@virtual_time
async def test_the_first_one_leads_at_once() -> None:
    server = Leases()
    async with candidate(server, "a") as a:
        await until(a, lambda: a.election.leads)

        assert server.lease is not None
        spec = server.lease["spec"]
        assert ("a", 15, 0, "a:8888") == (
            spec["holderIdentity"],
            spec["leaseDurationSeconds"],
            spec["leaseTransitions"],
            server.lease["metadata"]["annotations"][ADDRESS],
        )
        assert "" == a.election.may_post(POST)


@virtual_time
async def test_without_its_namespace_it_tries_now_and_then() -> None:
    server = Leases()
    server.missing_namespaces = {"here"}
    async with candidate(server, "a") as a:
        await asyncio.sleep(20)
        assert 2 <= server.count("POST") <= 20 / RETRY + 1

        server.missing_namespaces.clear()
        await until(a, lambda: a.election.leads)


@virtual_time
async def test_versions_that_went_back_are_believed_when_read() -> None:
    """etcd was restored from a backup of the time before the Lease was last written."""
    server = Leases()
    async with candidate(server, "a") as a:
        await until(a, lambda: a.election.leads)
        server.restore(2)

        await asyncio.sleep(2 * LEASE)
        assert a.election.leads
        assert server.count("PUT") < 2 * LEASE / RETRY + 3


@virtual_time
async def test_a_leader_stays_one_while_it_renews() -> None:
    server = Leases()
    async with candidate(server, "a") as a, candidate(server, "b") as b:
        await until(a, lambda: a.election.leads)
        for _ in range(300):
            await asyncio.sleep(1)
            assert ("", "a:8888") == (a.election.may_post(POST), b.election.leader and b.election.leader.address)


@virtual_time
async def test_one_that_is_released_is_taken_at_once_and_nothing_is_fenced() -> None:
    server = Leases()
    async with candidate(server, "a") as a:
        await until(a, lambda: a.election.leads)
        async with candidate(server, "b") as b:
            await until(b, lambda: b.election.leader is not None)
            a.election.retire()
            assert await a.release()
            assert "this replica does not lead" == a.election.may_post(POST)
            taken = await until(b, lambda: b.election.leads)
            await asyncio.sleep(30)

            assert taken < 0.2
            assert b.election.term is not None
            assert not b.election.term.fence
            assert ("b", False, "b") == (
                server.holder,
                a.election.leads,
                a.election.leader.holder if a.election.leader else "",
            )


@virtual_time
async def test_without_a_watch_it_is_found_out_by_reading() -> None:
    server = Leases()
    server.fail("WATCH", *[403] * 1000)
    async with candidate(server, "a") as a:
        await until(a, lambda: a.election.leads)
        async with candidate(server, "b") as b:
            await until(b, lambda: b.election.leader is not None)
            assert await a.release()

            assert await until(b, lambda: b.election.leads) <= 2 * RETRY


@virtual_time
async def test_an_api_server_away_for_too_long_ends_a_tenure_and_the_same_one_goes_on() -> None:
    server = Leases()
    async with candidate(server, "a") as a, candidate(server, "b") as b:
        await until(a, lambda: a.election.leads)
        term = a.election.term
        server.down = "lost"
        lasted = await until(a, lambda: not a.election.leads)
        assert DEADLINE - RETRY <= lasted <= DEADLINE
        await asyncio.sleep(3)
        server.down = None
        await until(a, lambda: a.election.leads or b.election.leads)
        if a.election.leads:
            assert a.election.term is term
        assert not (a.election.leads and b.election.leads)


@virtual_time
async def test_an_unclear_take_over_counts_from_the_renewal_that_is_answered() -> None:
    server = Leases()
    server.fail("POST", "unanswered")
    async with candidate(server, "a") as a:
        await until(a, lambda: server.holder == "a")
        assert not a.election.leads

        assert await until(a, lambda: a.election.leads) <= DEADLINE / 2 + RETRY
        assert a.election.term is not None
        assert (1000.0, NO_CALLERS) == (a.election.term.safe_at, a.election.term.fence)


@virtual_time
async def test_who_meets_a_conflict_looks_again() -> None:
    server = Leases()
    async with candidate(server, "a") as a:
        await until(a, lambda: a.election.leads)
        assert server.lease is not None
        touched = {**server.lease, "metadata": {**server.lease["metadata"], "labels": {"by": "hand"}}}
        server.put(touched)
        await asyncio.sleep(2 * RETRY)

        assert a.election.leads
        assert {"by": "hand"} == server.lease["metadata"]["labels"]


@virtual_time
async def test_a_lease_that_is_deleted_begins_a_term_of_its_own() -> None:
    server = Leases()
    async with candidate(server, "a") as a:
        await until(a, lambda: a.election.leads)
        before = a.election.term
        server.remove()
        await until(a, lambda: a.election.leads and a.election.term is not before)

        assert a.election.term is not None
        assert a.election.term.fence
