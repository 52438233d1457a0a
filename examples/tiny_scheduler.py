"""A whole scheduler in a few lines, for people who write their own: Homeport decides, this only asks and obeys.

It waits for pods whose ``spec.schedulerName`` is ``homeport``, runs one scheduling cycle for each at Homeport
(``POST /api/v1/cycle``) and binds them through Homeport (``POST /bind``), which re-checks before it binds. Nobody
else filters, so Homeport's profile of that name must be a complete one, as that of ``tiny_scheduler.yaml`` is.

    homeport serve --config examples/tiny_scheduler.yaml
    python examples/tiny_scheduler.py --api https://127.0.0.1:6443 --token TOKEN --ca ca.crt
"""

import argparse
import json
import queue
import ssl
import threading
import urllib.request
from typing import Any

SCHEDULER_NAME = "homeport"
PRESET = "complete"
RETRY_SECONDS = 1.0
PENDING = "fieldSelector=spec.nodeName%3D&allowWatchBookmarks=true"

Pod = dict[str, Any]


class Api:
    """As much of an API server's client as a scheduler needs: watch pods that have no node."""

    def __init__(self, server: str, token: str, ca: str) -> None:
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=ca)

    def pending_pods(self, found: "queue.Queue[Pod]") -> None:
        """Put every pending pod of ours into ``found``, for ever. A watch that ends is opened anew."""
        while True:
            url = f"{self._server}/api/v1/pods?watch=true&{PENDING}"
            request = urllib.request.Request(url, headers=self._headers)
            with urllib.request.urlopen(request, context=self._tls) as events:
                for line in events:
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        found.put(event["object"])


def post(url: str, body: object) -> Any:
    """The JSON answer to a JSON question."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def schedule(homeport: str, pod: Pod) -> str:
    """One cycle and one bind. Returns why the pod still waits; empty once it is bound."""
    cycle = post(f"{homeport}/api/v1/cycle", {"pod": pod})
    if cycle["preset"] != PRESET:
        return (
            f"Homeport's profile {cycle['profile']} leaves filters to its caller, who has none: see tiny_scheduler.yaml"
        )
    if not cycle["node"]:
        statuses = [cycle["preEnqueue"], *cycle["filter"].values()]
        return "; ".join(sorted({reason for status in statuses for reason in status["reasons"]}))
    meta = pod["metadata"]
    ask = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": cycle["node"]}
    return str(post(f"{homeport}/bind", ask)["Error"])


def run(homeport: str, found: "queue.Queue[Pod]") -> None:
    """Schedule what comes; what cannot be placed comes again a little later."""
    while True:
        pod = found.get()
        if pod["spec"]["schedulerName"] != SCHEDULER_NAME:
            continue
        waiting = schedule(homeport, pod)
        print(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}: {waiting or 'bound'}", flush=True)
        if waiting:
            threading.Timer(RETRY_SECONDS, found.put, [pod]).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", required=True, help="address of the API server")
    parser.add_argument("--token", required=True)
    parser.add_argument("--ca", required=True, help="file with the API server's CA certificate")
    parser.add_argument("--homeport", default="http://127.0.0.1:8888")
    arguments = parser.parse_args()
    found: queue.Queue[Pod] = queue.Queue()
    api = Api(arguments.api, arguments.token, arguments.ca)
    threading.Thread(target=api.pending_pods, args=[found], daemon=True).start()
    run(arguments.homeport, found)


if __name__ == "__main__":
    main()
