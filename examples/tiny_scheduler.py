"""A small but whole scheduler, as an example for people who write their own. Homeport makes all decisions.

The scheduler waits for pods whose ``spec.schedulerName`` is ``homeport``. For each pod it lets Homeport run a
scheduling cycle (``POST /api/v1/cycle``) and bind the pod (``POST /bind``). Before Homeport binds a pod, it checks the
constraints again. The scheduler has no filters, so Homeport's profile for these pods needs ``preset: complete``, as in
``tiny_scheduler.yaml``.

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
    """Client of the API server. It only watches pods that have no node."""

    def __init__(self, server: str, token: str, ca: str) -> None:
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=ca)

    def pending_pods(self, found: "queue.Queue[Pod]") -> None:
        """Put each pod without a node into ``found``, without end. If a watch ends, open another."""
        while True:
            url = f"{self._server}/api/v1/pods?watch=true&{PENDING}"
            request = urllib.request.Request(url, headers=self._headers)
            with urllib.request.urlopen(request, context=self._tls) as events:
                for line in events:
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED"):
                        found.put(event["object"])


def post(url: str, body: object) -> Any:
    """Send ``body`` as JSON, and return the decoded JSON answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def schedule(homeport: str, pod: Pod) -> str:
    """Run one cycle and one bind. Return the reason why the pod still waits, or an empty text if it is bound."""
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
    """Schedule the pods in ``found`` one by one. Put a pod back after a second if it could not be placed."""
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
