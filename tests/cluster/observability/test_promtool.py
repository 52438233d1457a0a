"""Alerts and dashboard in the eyes of promtool."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cluster.observability.programs import ProgramError, promtool
from tests.cluster.observability.stories import STORIES, Story
from tests.observability.files import ALERTS, alerts, expressions

SEVERITIES = {it["alert"]: it["labels"]["severity"] for it in alerts()}


def replaced(expression: str) -> str:
    """As Grafana sends it."""
    return expression.replace("$__rate_interval", "5m").replace("$namespace", ".*").replace("$pod", ".*")


def test_the_alerts_are_good_rules() -> None:
    assert f"{len(SEVERITIES)} rules found" in promtool("check", "rules", ALERTS)


def test_every_expression_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"expression:{number}", "expr": replaced(expr)} for number, (_, expr) in enumerate(expressions())
    ]
    found = tmp_path / "expressions.yaml"
    found.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]}))

    assert f"{len(rules)} rules found" in promtool("check", "rules", found)


def test_promtool_sees_what_is_no_promql(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": [{"record": "a", "expr": "rate(b)"}]}]}))

    with pytest.raises(ProgramError, match="range vector"):
        promtool("check", "rules", wrong)


def test_each_alert_has_a_story_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert {(name, fires) for name in SEVERITIES for fires in (True, False)} == {
        (it.alert, bool(it.fires)) for it in STORIES
    }


@pytest.mark.parametrize("story", [pytest.param(it, id=f"{it.alert}, {it.about}") for it in STORIES])
def test_an_alert_fires_when_it_should(story: Story, tmp_path: Path) -> None:
    test = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [story.written(SEVERITIES[story.alert])]}
    written = tmp_path / "story.yaml"
    written.write_text(yaml.safe_dump(test))

    assert "SUCCESS" in promtool("test", "rules", written)
