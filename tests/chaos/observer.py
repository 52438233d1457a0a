"""Records for the checker what the API server tells of a few kinds, past every proxy."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Self

import httpx

from tests.chaos.checker import Event, Json, Kind
from tests.chaos.room import slim
from tests.controlplane.client import RESOURCES
from tests.controlplane.controlplane import ControlPlane

_PAUSE: Final = 0.1
_OF_STATUS: Final = ("allocatable", "migrationState", "nodeInfo", "nodeName", "nominatedNodeName")
_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")


class Observer:
    """One list-then-watch a kind, each in a thread. What is deleted while a watch is down would go unseen: it fails."""

    def __init__(self, plane: ControlPlane, kinds: Iterable[Kind] = ("Node", "Pod")) -> None:
        self._plane = plane
        self._kinds = tuple(kinds)
        self._events: list[Event] = []
        self._there: dict[Kind, dict[str, Json]] = {kind: {} for kind in (*self._kinds, "Pod")}
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._listeners: list[Callable[[Event], None]] = []
        self._failures: list[str] = []
        self._http: list[httpx.Client] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        versions = {kind: self._list(kind) for kind in self._kinds}
        for kind, version in versions.items():
            thread = threading.Thread(target=self._watch, args=(kind, version), name=f"observe {kind}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for http in self._http:
            http.close()

    def on_event(self, listener: Callable[[Event], None]) -> None:
        """Call ``listener`` with every event to come, from the thread that received it."""
        self._listeners.append(listener)

    def history(self) -> list[Event]:
        """Everything since the start. Raises ``RuntimeError`` if something was missed."""
        with self._changed:
            if self._failures:
                raise RuntimeError("; ".join(self._failures))
            return list(self._events)

    def present(self) -> list[Event]:
        """What is there now, as if it had just been added."""
        with self._changed:
            return [Event(kind, "ADDED", found) for kind, it in self._there.items() for found in it.values()]

    def pods(self) -> list[Json]:
        """The pods as they are now."""
        with self._changed:
            return list(self._there["Pod"].values())

    def bound(self) -> dict[str, str]:
        """Return the nodes of the pods that have one, by the name of the pod."""
        return {it["metadata"]["name"]: it["spec"]["nodeName"] for it in self.pods() if it["spec"].get("nodeName")}

    def settle(self, done: Callable[[list[Json]], bool], patience: float) -> bool:
        """Wait until the pods are as wanted; ``False`` once none was bound, came or went for ``patience`` seconds."""
        with self._changed:
            progress, since = self._progress(), time.monotonic()
            while not done(list(self._there["Pod"].values())):
                if self._failures or time.monotonic() - since > patience:
                    return False
                self._changed.wait(_PAUSE)
                if (now := self._progress()) != progress:
                    progress, since = now, time.monotonic()
            return True

    def _progress(self) -> frozenset[tuple[str, str]]:
        return frozenset((uid, str(pod["spec"].get("nodeName"))) for uid, pod in self._there["Pod"].items())

    def _list(self, kind: Kind) -> str:
        found = self._plane.client.request("GET", RESOURCES[kind].path())
        api = {"apiVersion": RESOURCES[kind].api_version, "kind": kind}
        for item in found["items"]:
            self._take(Event(kind, "ADDED", {**api, **item}, time.monotonic()))
        return str(found["metadata"]["resourceVersion"])

    def _watch(self, kind: Kind, version: str) -> None:
        http = self._client()
        params = {"watch": "true", "allowWatchBookmarks": "true"}
        while not self._stopped.is_set():
            try:
                with http.stream("GET", RESOURCES[kind].path(), params={**params, "resourceVersion": version}) as lines:
                    for line in lines.iter_lines():
                        version = self._line(kind, json.loads(line)) or version
            except (httpx.HTTPError, RuntimeError, ssl.SSLError, OSError, ValueError):
                self._stopped.wait(_PAUSE)  # the API server is away, or this is over: the version says where to go on

    def _line(self, kind: Kind, told: Any) -> str:
        """Returns the version from which a new watch would go on."""
        if told["type"] == "ERROR":
            with self._changed:
                self._failures.append(f"the watch of {kind} lost events: {told['object'].get('message')}")
            self._stopped.set()
            return ""
        found: Json = told["object"]
        if told["type"] in _CHANGES:
            event = Event(kind, told["type"], found, time.monotonic())
            self._take(event)
            for listener in self._listeners:
                listener(event)
        return str(found["metadata"]["resourceVersion"])

    def _take(self, event: Event) -> None:
        kept = replace(event, found=_judged_by(event.found))
        with self._changed:
            self._events.append(kept)
            there = self._there[event.kind]
            there[event.uid] = kept.found
            if event.change == "DELETED":
                del there[event.uid]
            self._changed.notify_all()

    def _client(self) -> httpx.Client:
        http = httpx.Client(
            base_url=self._plane.server,
            headers={"Authorization": f"Bearer {self._plane.token}"},
            verify=ssl.create_default_context(cafile=str(self._plane.ca_file)),
            timeout=httpx.Timeout(10, read=None),
            trust_env=False,
        )
        self._http.append(http)
        return http


def _judged_by(found: Json) -> Json:
    """Without the parts that no judgement looks at and that are most of a long history."""
    metadata = {key: it for key, it in found["metadata"].items() if key != "managedFields"}
    whole = found.get("spec", {})
    spec = {key: it for key, it in whole.items() if key not in ("containers", "volumes", "template")}
    status = found.get("status", {})
    return {
        "metadata": metadata,
        "spec": {**spec, **slim(whole)},
        "status": {"phase": status.get("phase"), **{key: status[key] for key in _OF_STATUS if key in status}},
    }
