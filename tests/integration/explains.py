"""What explain and kube-scheduler say of a pod, asked until both speak of the same cluster."""

from __future__ import annotations

import httpx

from tests.controlplane.client import Client, Json
from tests.integration.service import HTTP, Homeport


class Explains:
    """Asks Homeport with ``explain: complete``, and reads the condition that kube-scheduler writes."""

    def __init__(self, client: Client, homeport: Homeport) -> None:
        self.client = client
        self.homeport = homeport

    def ask(self, pod: str, namespace: str = "default") -> httpx.Response:
        return HTTP.get(f"{self.homeport.url}/api/v1/explain/{namespace}/{pod}")

    def explained(self, pod: str, nodes: int, namespace: str = "default") -> Json:
        """Return the explanation once so many nodes and all filters are judged."""

        def complete() -> Json | None:
            answer = self.ask(pod, namespace)
            found: Json = answer.json()
            return found if answer.is_success and found["total"] == nodes and not found["notJudged"] else None

        return self.client.wait_for(complete, what=f"{pod} to be explained on {nodes} nodes")

    def condition(self, pod: str, namespace: str = "default") -> str:
        """Return what kube-scheduler wrote on the pod; empty if nothing."""
        conditions = self.client.get("Pod", pod, namespace)["status"].get("conditions", [])
        return next((it["message"] for it in conditions if it["type"] == "PodScheduled" and "message" in it), "")

    def refused(self, pod: str, nodes: int, namespace: str = "default") -> Json:
        """Return the explanation once kube-scheduler speaks of so many nodes, and explain has read its message."""

        def same() -> Json | None:
            message, found = self.condition(pod, namespace), self.explained(pod, nodes, namespace)
            written = found["scheduler"] or {"message": ""}
            return found if message.startswith(f"0/{nodes} ") and written["message"] == message else None

        return self.client.wait_for(same, what=f"{pod} to be refused on {nodes} nodes")
