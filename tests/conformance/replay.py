"""Homeport's side of a history: one picture kept from its events, and the verdicts along the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from app.analysis.verdict import evaluate_pod, status_as_json, status_on
from app.feeds.stores import Store, store_for
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.kube import kinds
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from tests.builders import encoded
from tests.conformance.draft import Json
from tests.conformance.histories import Key, key_of
from tests.harness import World

_KINDS: Final[Mapping[str, Kind[Any]]] = {
    kind.kind: kind
    for kind in (
        kinds.PODS,
        kinds.NODES,
        kinds.NAMESPACES,
        kinds.SERVICES,
        kinds.REPLICATION_CONTROLLERS,
        kinds.REPLICA_SETS,
        kinds.STATEFUL_SETS,
    )
}


def replayed(config: Json, events: Iterable[Json]) -> Iterator[Json]:
    """The verdict at each point where a pod is judged. Fails where the kept counts differ from a recount."""
    replay = _Replay(config)
    for event in events:
        if event["do"] == "ask":
            assert replay.world.cluster.check() == [], event["case"]
            yield {"name": event["case"], **replay.judge(event)}
        else:
            replay.happen(event)


class _Replay:
    """``listed`` is what a list of the API server would show."""

    def __init__(self, config: Json) -> None:
        self.world = World(profile=config)
        self.stores: dict[str, Store[Any]] = {
            name: store_for(self.world.cluster, kind) for name, kind in _KINDS.items()
        }
        self.listed: dict[Key, Json] = {}

    def happen(self, event: Json) -> None:
        cluster = self.world.cluster
        match event["do"]:
            case "upsert":
                self._list(event)
                self._upsert(event["object"])
            case "delete":
                self._list(event)
                kind, *key = key_of(event["object"])
                self.stores[kind].delete((key[0], key[1]), event["object"]["metadata"]["uid"])
            case "assume":
                cluster.assume(self._pod(event["object"]), event["node"])
            case "accept":
                cluster.accept(event["object"]["metadata"]["uid"])
            case "forget":
                cluster.forget(event["object"]["metadata"]["uid"])
            case "relist":
                for missed in event["missed"]:
                    self._list(missed)
                self._relist()

    def _list(self, event: Json) -> None:
        self.listed.pop(key_of(event["object"]), None)
        if event["do"] == "upsert":
            self.listed[key_of(event["object"])] = event["object"]

    def _upsert(self, found: Json) -> None:
        kind = found["kind"]
        self.stores[kind].upsert(self.world.cluster.decoder(_KINDS[kind])(encoded(found)))

    def _relist(self) -> None:
        """Take in a fresh list of every kind, and forget what it lacks."""
        for found in self.listed.values():
            self._upsert(found)
        for kind, store in self.stores.items():
            for key in tuple(store.keys()):
                if (kind, *key) not in self.listed:
                    store.delete(key, "")

    def judge(self, asked: Json) -> Json:
        pod = self._pod(asked["pod"])
        found = evaluate_pod(self.world.framework, pod, Candidates.of(self.world.cluster.nodes))
        if asked["dryRun"] is not None:
            found["dryRun"] = self._dry_run(pod, asked["dryRun"]) if found["preFilter"]["code"] == "Success" else []
        return found

    def _dry_run(self, pod: Pod, asked: Json) -> list[Json]:
        framework, node = self.world.framework, self.world.cluster.nodes[asked["node"]]
        state = CycleState()
        framework.filters.pre_filter(state, pod)
        found = {str(other): other for other in node.pods.values()}
        gone: set[str] = set()
        said = []
        for step in asked["steps"]:
            if "remove" in step:
                gone.add(found[step["remove"]].uid)
                framework.filters.remove_pods(state, pod, [found[step["remove"]]], node.without_pods(gone))
            else:
                gone.discard(found[step["add"]].uid)
                framework.filters.add_pods(state, pod, [found[step["add"]]], node.without_pods(gone))
            said.append(status_as_json(status_on(framework, state.clone(), pod, node.without_pods(gone))))
        return said

    def _pod(self, found: Json) -> Pod:
        return self.world.cluster.core.decode_pod(encoded(found))
