"""A running Homeport under events, in a very large cluster, from its start, and at work on binds.

    python -m tests.load.service
    python -m tests.load.service --nodes 100 --many-nodes 1000 --pods 2000 --calls 200 --seconds 1 --binds 100

Four parts, each beside a plain figure of the same run: ``events`` (how long does filter take while pod events arrive,
and who waits for whom), ``names`` (what a name costs in a cluster of 65,000 nodes against one of 5,000), ``start``
(from the start to the first correct answer, and memory), ``binds`` (processor time of a bind). The API server is a
stand-in that lists, watches and binds. Prints JSON, and tables on standard error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tests.beside import beside
from tests.load import cluster, report
from tests.load.bench import Connection, Served, homeport, requests, wait_for
from tests.load.shop import app, asked, constraint, pending_json
from tests.load.usage import cpu_seconds, peak_megabytes, resident_megabytes

_EVENTS_PER_SECOND: Final = 1000
_BODY_BYTES: Final = 32 << 20
_NODE_BYTES: Final = 12_000
_WARM_UP: Final = 100
_ORDERS: Final = 20
"""kube-scheduler asks in another order each time: no answer may come from one that was given."""

_PREFIX: Final = "lean/"
_AT_ONCE: Final = 16


class Sizes(Struct, frozen=True):
    """What is measured, in numbers."""

    nodes: int
    many_nodes: int
    pods: int
    calls: int
    seconds: float
    binds: int


def timed(connection: Connection, verb: str, body: bytes) -> float:
    """Microseconds of a call, to the address that examples/kube-scheduler has."""
    began = time.perf_counter()
    connection.post(f"/{_PREFIX}{verb}", body)
    return (time.perf_counter() - began) * 1e6


def names_of(count: int) -> list[str]:
    return [cluster.node_name(number) for number in range(count)]


# Events


def under_events(sizes: Sizes) -> dict[str, Any]:
    """filter of 500 names: in quiet, while events arrive, and while something else is asked of the same loop."""
    bodies = requests(cluster.pending_pod(7), min(500, sizes.nodes), _ORDERS)
    with homeport(sizes.nodes, sizes.pods, observed=True) as served, tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "nodes"
        large.write_bytes(_large_body())
        base = f"http://127.0.0.1:{served.port}"
        control = Connection(served.apiserver)
        besides: dict[str, AbstractContextManager[None]] = {
            "quiet": nullcontext(),
            "events": nullcontext(),
            "events, scrapes of /metrics": _again(lambda: _curl(f"{base}/metrics"), 0.05),
            "events, lists taken anew": _again(lambda: control.post("/bench/gone", b""), 2.0),
            f"events, bodies of {large.stat().st_size >> 20} MiB": _again(
                lambda: _curl("--data-binary", f"@{large}", f"{base}/{_PREFIX}filter"), 0.2
            ),
        }
        found = {}
        for name, beside in besides.items():
            found[name] = _segment(served, bodies, sizes.seconds, beside)
            Connection(served.apiserver).post(f"/bench/rate/{_EVENTS_PER_SECOND}", b"")
        relists = [it for it in Connection(served.port).get("/metrics").decode().splitlines() if "relists_total{" in it]
        return {"segments": found, "relists": relists}


def _segment(
    served: Served, bodies: Sequence[bytes], seconds: float, beside: AbstractContextManager[None]
) -> dict[str, Any]:
    connection = Connection(served.port)
    with beside:
        for number in range(_WARM_UP):
            timed(connection, "filter", bodies[number % _ORDERS])
        served.longest_pause()
        found: list[float] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found.append(timed(connection, "filter", bodies[len(found) % _ORDERS]))
        times = report.percentiles(found)
        pauses = served.longest_pause()
    return {
        "calls": len(found),
        "us": times,
        "p99 / p50": round(times["p99"] / times["p50"], 2),
        "longest_pause": pauses,
    }


def big_node(number: int) -> dict[str, Any]:
    """A node padded with an annotation."""
    made = cluster.node(number)
    made["metadata"]["annotations"] = {"example.com/padding": "x" * (_NODE_BYTES - len(json.dumps(made)))}
    return made


def _large_body() -> bytes:
    """A filter of whole nodes, nearly as large as is taken."""
    made = {"Pod": cluster.pending_pod(7), "NodeNames": None}
    items: list[dict[str, Any]] = []
    size = 0
    while size < _BODY_BYTES - 4 * _NODE_BYTES:
        items.append(big_node(len(items)))
        size += _NODE_BYTES + 32
    return json.dumps({**made, "Nodes": {"metadata": {}, "items": items}}, separators=(",", ":")).encode()


@contextmanager
def _again(do: Callable[[], object], seconds: float) -> Iterator[None]:
    """Again and again in a thread; what is done is mostly waiting for another process."""

    def work(over: threading.Event) -> None:
        while not over.wait(seconds):
            do()

    with beside(work):
        yield


def _curl(*arguments: str) -> None:
    subprocess.run(["curl", "-s", "-o", "/dev/null", "-H", "Expect:", *arguments], check=True)


# Names


def by_names(sizes: Sizes) -> dict[str, Any]:
    """All names of a cluster in one call, and as many as kube-scheduler samples, in a small and a large cluster."""
    pods = min(sizes.pods, 10_000)
    with homeport(sizes.nodes, pods) as small, homeport(sizes.many_nodes, pods) as large:
        ends = [(Connection(it.port), count) for it, count in ((small, sizes.nodes), (large, sizes.many_nodes))]
        return {
            f"{verb}, {what}, {sampled}": _per_name(ends, verb, made, share, sizes.calls)
            for verb, hard in (("filter", True), ("prioritize", False))
            for what, key in (("zone", cluster.ZONE_KEY), ("host", cluster.HOST_KEY))
            for made in (pending_json(7, constraint(key, app(7), hard=hard)),)
            for sampled, share in (("all names", 1.0), ("as many as are sampled", 0.0))
        }


def _per_name(
    ends: Sequence[tuple[Connection, int]], verb: str, made: dict[str, Any], share: float, calls: int
) -> dict[str, Any]:
    """Nanoseconds for a name at each end, and the ratio, large by small."""
    counts = [round(count * (share or _sampled(count))) for _, count in ends]
    bodies = [requests(made, count, _ORDERS) for count in counts]
    times: list[list[float]] = [[], []]
    for number in range(max(20, calls * 500 // counts[1])):
        for end, (connection, _) in enumerate(ends):
            took = timed(connection, verb, bodies[end][number % _ORDERS])
            if number >= 3:
                times[end].append(took)
    small, large = (report.percentiles(it)["p50"] * 1000 / count for it, count in zip(times, counts, strict=True))
    return {"names": counts, "ns a name": [round(small, 1), round(large, 1)], "ratio": round(large / small, 2)}


def _sampled(nodes: int) -> float:
    """The share of nodes kube-scheduler looks for by default."""
    return max(5, 50 - nodes // 125) / 100


# Start


def from_the_start(sizes: Sizes) -> dict[str, Any]:
    """Until filter gives the right names, not only some; and what a bare download of the same lists takes."""
    made = cluster.pending_pod(7)
    right = _feasible_zones(7, sizes)
    names = names_of(sizes.nodes)
    expected = [name for number, name in enumerate(names) if cluster.ZONES[number % len(cluster.ZONES)] in right]
    body = asked(made, names)
    with homeport(sizes.nodes, sizes.pods, ready=False) as served:
        wait_for(lambda: _answer(served.port, body).get("NodeNames") == expected, 600)
        seconds = time.monotonic() - served.started
        download = _download(served.apiserver)
        return {
            "seconds to the first correct answer": round(seconds, 2),
            "seconds to download the lists": round(download, 2),
            "ratio": round(seconds / download, 2),
            "resident MB": round(resident_megabytes(served.pid), 1),
            "most MB": round(peak_megabytes(served.pid), 1),
        }


def _feasible_zones(workload: int, sizes: Sizes) -> set[str]:
    """Counted from the numbers alone: the zones where one more pod keeps a skew of 5."""
    counts = _by_zone(workload, sizes)
    return {zone for zone, count in counts.items() if count + 1 - min(counts.values()) <= 5}


def _by_zone(workload: int, sizes: Sizes) -> Counter[str]:
    """How many pods of a workload run in each zone, from the numbers alone."""
    counts = Counter(dict.fromkeys(cluster.ZONES, 0))
    counts.update(
        cluster.ZONES[number % sizes.nodes % len(cluster.ZONES)]
        for number in range(workload, sizes.pods, cluster.WORKLOADS)
    )
    return counts


def _answer(port: int, body: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Connection(port).post("/filter", body))
    except (OSError, RuntimeError):
        return {}
    return found


def _download(port: int) -> float:
    """Seconds to read nodes and pods page by page and look at nothing: what the wire takes."""
    connection, began = Connection(port), time.monotonic()
    for kind in ("nodes", "pods"):
        token = ""
        while True:
            page = connection.get(f"/api/v1/{kind}?limit=500&continue={token}")
            token = json.loads(page[: page.index(b',"items"')].partition(b'"metadata":')[2])["continue"]
            if not token:
                break
    return time.monotonic() - began


# Binds


def binds(sizes: Sizes) -> dict[str, Any]:
    """Processor time of Homeport for a bind of a pod with constraints, beside that of the least call there is."""
    with homeport(sizes.nodes, sizes.pods, sizes.binds) as served:
        bodies = list(_bindings(sizes))
        one_name = asked(cluster.pending_pod(7), names_of(1))
        half = sizes.binds // 2
        plain = _cpu_ms(served, lambda: _one_by_one(served, "filter", [one_name] * half), half)
        serial = _cpu_ms(served, lambda: _one_by_one(served, "bind", bodies[:half]), half)
        together = _cpu_ms(served, lambda: _at_once(served, bodies[half:]), sizes.binds - half)
        return {
            "CPU ms a bind": serial,
            f"CPU ms a bind, {_AT_ONCE} at once": together,
            "CPU ms a filter of one name": plain,
            "ratio": round(serial / plain, 2) if plain else None,
        }


def _bindings(sizes: Sizes) -> Iterator[bytes]:
    """Each to a node of the zone where its workload has fewest pods, round the nodes of that zone."""
    zones: dict[int, Counter[str]] = {}
    for number in range(sizes.binds):
        workload = number % cluster.WORKLOADS
        counts = zones.get(workload) or zones.setdefault(workload, _by_zone(workload, sizes))
        zone = min(counts, key=lambda it: counts[it])
        counts[zone] += 1
        metadata = cluster.waiting_pod(number)["metadata"]
        named = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        in_zone = range(cluster.ZONES.index(zone), sizes.nodes, len(cluster.ZONES))
        yield json.dumps({**named, "Node": cluster.node_name(in_zone[number % len(in_zone)])}).encode()


def _one_by_one(served: Served, verb: str, bodies: Sequence[bytes]) -> None:
    connection = Connection(served.port)
    for body in bodies:
        _succeeded(connection.post(f"/{_PREFIX}{verb}", body))


def _at_once(served: Served, bodies: Sequence[bytes]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        parts = [bodies[number::_AT_ONCE] for number in range(_AT_ONCE)]
        for done in [pool.submit(_one_by_one, served, "bind", part) for part in parts]:
            done.result()


def _succeeded(answer: bytes) -> None:
    if error := json.loads(answer).get("Error"):
        raise RuntimeError(error)


def _cpu_ms(served: Served, work: Callable[[], None], count: int) -> float:
    before = cpu_seconds(served.pid)
    work()
    return round((cpu_seconds(served.pid) - before) * 1000 / count, 3)


PARTS: Final[Mapping[str, Callable[[Sizes], dict[str, Any]]]] = {
    "events": under_events,
    "names": by_names,
    "start": from_the_start,
    "binds": binds,
}


def show(found: Mapping[str, Any]) -> None:
    if "events" in found:
        rows = [
            (name, it["us"]["p50"], it["us"]["p99"], it["p99 / p50"], it["longest_pause"]["wall_ms"], pause["cpu_ms"])
            for name, it in found["events"]["segments"].items()
            for pause in (it["longest_pause"],)
        ]
        report.table(("filter of 500 names", "p50 µs", "p99 µs", "p99 / p50", "pause ms", "of it CPU"), rows)
    if "names" in found:
        rows = [(name, *it["names"], *it["ns a name"], it["ratio"]) for name, it in found["names"].items()]
        report.table(("names", "small", "large", "ns a name", "large", "ratio"), rows)
    for part in ("start", "binds"):
        if part in found:
            report.table((part, ""), list(found[part].items()))


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.service", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--many-nodes", type=int, default=65_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=15, help="of each part of events; default: %(default)s")
    parser.add_argument("--binds", type=int, default=4_000)
    parser.add_argument("--only", default=",".join(PARTS), help="parts; default: %(default)s")
    given = parser.parse_args()
    sizes = Sizes(given.nodes, given.many_nodes, given.pods, given.calls, given.seconds, given.binds)
    found = {name: PARTS[name](sizes) for name in given.only.split(",")}
    show(found)
    report.publish({"machine": report.machine(), "service": found})


if __name__ == "__main__":
    main()
