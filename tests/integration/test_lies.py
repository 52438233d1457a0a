"""Between Homeport and a real API server somebody lies, or is quicker: no lie makes a bind, or gives a place up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.chaos.liar import BINDING, FORGED, WELCOME, Lie, LyingProxy, Request
from tests.controlplane import objects
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport
from tests.integration.test_replicas import FENCE

READ = Request("GET", "/pods/web")
FENCING = Request("PATCH", "/pods/web/status")
NOT_ARRIVED = "homeport: the binding did not arrive at the API server"
UNCONFIRMED = 'homeport: an earlier bind of this pod to node "n1" is not confirmed yet'
CONFLICT = 409


class Story:
    """A node, a pod, and a Homeport that reaches the API server through the proxy."""

    def __init__(self, plane: ControlPlane, proxy: LyingProxy, homeport: Homeport) -> None:
        self.plane, self.proxy, self.homeport = plane, proxy, homeport

    def bind(self) -> str:
        """Ask for a bind as a scheduler does; return the error, empty for success."""
        request = {"PodName": "web", "PodNamespace": "default", "PodUID": self.pod["metadata"]["uid"], "Node": "n1"}
        found: str = HTTP.post(f"{self.homeport.url}/bind", json=request, timeout=30).json()["Error"]
        return found

    @property
    def pod(self) -> Json:
        return self.plane.client.get("Pod", "web")

    @property
    def seen(self) -> tuple[str, bool, int]:
        """The node of the pod, whether it is fenced, and how many pods Homeport assumes."""
        pod = self.pod
        fenced = FENCE in pod["metadata"].get("annotations", {})
        return pod["spec"].get("nodeName", ""), fenced, self.homeport.get("/api/v1/status")["assumed_pods"]

    def wait(self, what: str, until: Callable[[], bool]) -> None:
        self.plane.client.wait_for(until, what=what)


@pytest.fixture
def story(plane: ControlPlane, tmp_path: Path) -> Iterator[Story]:
    with telling(plane, tmp_path) as it:
        yield it


@contextmanager
def telling(plane: ControlPlane, folder: Path, *flags: str) -> Iterator[Story]:
    plane.client.create_node(objects.node("n1"))
    plane.client.create(objects.pod("web", requests={"cpu": "1"}))
    kubeconfig = folder / "kubeconfig"
    with LyingProxy(plane) as proxy, Homeport(proxy.kubeconfig(kubeconfig), folder, flags) as homeport:
        yield Story(plane, proxy, homeport)


def test_a_page_is_not_a_bind(story: Story) -> None:
    story.proxy.lies = {BINDING: Lie(WELCOME)}

    assert [NOT_ARRIVED] * 2 == [story.bind(), story.bind()]
    assert ("", True, 0) == story.seen

    story.proxy.lies = {}
    assert "" == story.bind()
    assert "n1" == story.seen[0]


def test_a_page_may_hide_a_bind(story: Story) -> None:
    story.proxy.lies = {BINDING: Lie(WELCOME, forwards=True)}

    assert "" == story.bind()
    assert ("n1", False) == story.seen[:2]


def test_a_binding_that_arrives_after_its_answer_meets_a_conflict(story: Story) -> None:
    story.proxy.lies = {BINDING: Lie(WELCOME, later=1.0)}

    assert NOT_ARRIVED == story.bind()
    story.wait("the Binding to arrive", lambda: bool(story.proxy.late))
    assert ([CONFLICT], ("", True, 0)) == (story.proxy.late, story.seen)


def test_a_bind_that_the_watch_never_shows_is_read_back_and_given_up_only_by_a_fence(story: Story) -> None:
    """The proxy forges the API server's own Status, and then answers reads and fences with pages."""
    story.proxy.lies = {BINDING: FORGED, FENCING: Lie(WELCOME)}
    assert "" == story.bind()

    story.wait("a fence that is answered with a page", lambda: len(story.proxy.told) > 1)
    assert (("", False, 1), UNCONFIRMED) == (story.seen, story.bind())

    story.proxy.lies = {READ: Lie(WELCOME)}
    before = len(story.proxy.told)
    story.wait("a read that is answered with a page", lambda: len(story.proxy.told) > before)
    assert ("", False, 1) == story.seen

    story.proxy.lies = {}
    story.wait("the place to be given up", lambda: story.seen == ("", True, 0))
    assert "" == story.bind()
    assert "n1" == story.seen[0]


def test_a_bind_that_takes_effect_after_all_is_confirmed(story: Story) -> None:
    """The Status was forged, and the pod bound by the time it is read."""
    story.proxy.lies = {BINDING: FORGED, READ: Lie(WELCOME)}
    assert "" == story.bind()
    story.wait("a read that is answered with a page", lambda: len(story.proxy.told) > 1)

    story.plane.client.bind("web", "n1")
    story.proxy.lies = {}

    story.wait("the bind to be confirmed", lambda: story.seen == ("n1", False, 0))
    assert "" == story.bind()


def test_a_storm_of_status_conflicts_does_not_keep_a_pod_from_its_node(plane: ControlPlane, tmp_path: Path) -> None:
    """Somebody writes the pod's status before each of six Bindings; `complete` decodes of pods all that can be."""
    config = tmp_path / "homeport.yaml"
    profile = {"schedulerName": "default-scheduler", "preset": "complete"}
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config.write_text(yaml.safe_dump({**head, "profiles": [profile]}))
    conflicts = iter(range(6))

    def write_status() -> None:
        number = next(conflicts, None)
        if number is not None:
            condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": f"{number}"}
            plane.client.patch_status("Pod", "web", {"conditions": [condition]})

    with telling(plane, tmp_path, f"--config={config}") as story:
        story.proxy.before = {BINDING: write_status}

        assert "" == story.bind()
        assert (("n1", False), None) == (story.seen[:2], next(conflicts, None))
