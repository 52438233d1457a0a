"""What becomes of a flood: many filter posts of all nodes at once, each on a connection of its own, and the next call.

Run as ``python -m tests.load.flood``; prints one JSON object: answers by what they say, seconds until the slowest, and
the milliseconds of a single call before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from tests.load import cluster
from tests.served import served

VERDICT: Final = "a verdict"


async def post(port: int, body: bytes) -> tuple[str, float]:
    """What is said, and after how many seconds."""
    began = perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    found = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found["Error"] or VERDICT, perf_counter() - began


async def flood(port: int, body: bytes, calls: int) -> dict[str, Any]:
    _, before = await post(port, body)
    answers = await asyncio.gather(*(post(port, body) for _ in range(calls)))
    said, after = await post(port, body)
    slowest = {word: round(max(it for text, it in answers if text == word), 2) for word in {it[0] for it in answers}}
    return {
        "answers": Counter(text for text, _ in answers),
        "slowest_s": slowest,
        "single_ms": {"before": round(before * 1000, 1), "after": round(after * 1000, 1), "said": said},
    }


def main(nodes: int, pods: int, calls: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        items = [{"apiVersion": "v1", "kind": "Node", **cluster.node(number)} for number in range(nodes)]
        items += [{"apiVersion": "v1", "kind": "Pod", **cluster.pod(number, nodes)} for number in range(pods)]
        saved = Path(folder) / "cluster.json"
        saved.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        names = [cluster.node_name(number) for number in range(nodes)]
        body = json.dumps({"Pod": cluster.pending_pod(7), "NodeNames": names}).encode()
        with served(Path(folder), "--cluster", saved) as http:
            return asyncio.run(flood(http.base_url.port or 0, body, calls))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10000)
    parser.add_argument("--calls", type=int, default=300)
    given = parser.parse_args()
    json.dump(main(given.nodes, given.pods, given.calls), sys.stdout, indent=2)
    print()
