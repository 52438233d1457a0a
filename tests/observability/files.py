"""The dashboard and the alerts as the chart ships them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
DASHBOARD: Final = ROOT / "helm" / "homeport" / "files" / "dashboard.json"
ALERTS: Final = ROOT / "helm" / "homeport" / "files" / "alerts.yaml"
RUNBOOK: Final = ROOT / "docs" / "runbook.md"

Json = dict[str, Any]


def dashboard() -> Json:
    found: Json = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def panels() -> list[Json]:
    """Those that show something: rows are left out."""
    return [it for it in dashboard()["panels"] if it["type"] != "row"]


def alerts() -> list[Json]:
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of both, with where it stands."""
    for panel in panels():
        for target in panel["targets"]:
            yield f"panel {panel['title']} {target['refId']}", target["expr"]
    for annotation in dashboard()["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]
    for rule in alerts():
        yield f"alert {rule['alert']}", rule["expr"]
