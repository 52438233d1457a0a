"""docs/explain.md shows what is printed about its ten pods, and what kube-scheduler wrote on them."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from app.__main__ import main
from tests.api.stuck_pods import CONFIG, NODES, STUCK
from tests.builders import JsonObject

PAGE: Final = Path(__file__).parents[2] / "docs" / "explain.md"
SINCE: Final = "2026-11-24T18:16:23Z"
SAVED: Final = datetime(2026, 11, 24, 18, 16, 28, tzinfo=UTC).timestamp()


class Shown(NamedTuple):
    """Section of the page: message of the condition, end of ``kubectl describe``, and what Homeport prints."""

    condition: str
    described: str
    explained: str


def sections() -> dict[str, str]:
    """Sections of the page by title, without the number before it."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^### \d+\. (.+?)\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
    return dict(found)


def shown(title: str, pod: str) -> Shown:
    """Read a section; each command in it is about the pod."""
    condition, described, explained = re.findall(r"```console\n\$ (.*?)```", sections()[title], re.DOTALL)
    outputs = []
    for command, block in ((f"kubectl get pod {pod} ", condition), (f"kubectl describe pod {pod}", described)):
        assert block.startswith(command)
        outputs.append(block.partition("\n")[2])
    assert explained.startswith(f"homeport explain {pod}\n")
    return Shown(outputs[0].rstrip("\n"), outputs[1], explained.partition("\n")[2])


def cluster(title: str, condition: str) -> JsonObject:
    """The cluster of a section as it is saved once kube-scheduler has written its condition."""
    make, name = STUCK[title]
    items: list[JsonObject] = []

    def create(made: JsonObject) -> JsonObject:
        metadata = {"uid": f"uid-{len(items)}", **made["metadata"]}
        items.append({**made, "metadata": metadata})
        return items[-1]

    make(create)
    (pod,) = (it for it in items if it["metadata"]["name"] == name and it["kind"] == "Pod")
    if condition:
        blocked = {"type": "PodScheduled", "status": "False", "lastTransitionTime": SINCE, "message": condition}
        reason = "Unschedulable" if condition.startswith("0/") else "SchedulingGated"
        pod["status"] = {**pod.get("status", {}), "conditions": [{**blocked, "reason": reason}]}
    return {"apiVersion": "v1", "kind": "List", "items": items}


def test_the_page_has_these_sections() -> None:
    assert list(STUCK) == list(sections())


@pytest.mark.parametrize("title", STUCK)
def test_what_is_printed(title: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = STUCK[title][1]
    expected = shown(title, pod)
    (config := tmp_path / "homeport.json").write_text(json.dumps(CONFIG))
    (saved := tmp_path / "cluster.json").write_text(json.dumps(cluster(title, expected.condition)))
    os.utime(saved, (SAVED, SAVED))

    main(["explain", pod, "-n", "default", "--saved", str(saved), "--config", str(config), "-q"])

    assert expected.explained == "".join(capsys.readouterr())


@pytest.mark.parametrize("title", STUCK)
def test_what_kubectl_describes_is_the_condition(title: str) -> None:
    """kube-scheduler writes its message into an Event too, except for gates."""
    found = shown(title, STUCK[title][1])

    tried = found.condition.startswith(f"0/{len(NODES)} nodes are available: ")
    event = f"  Warning  FailedScheduling  5s    default-scheduler  {found.condition}\n"
    assert tried == (event in re.sub(r"default-scheduler +", "default-scheduler  ", found.described))
    assert tried == ("<none>" not in found.described)
