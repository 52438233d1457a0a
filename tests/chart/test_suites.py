"""The chart's own suites, template by template."""

import re
import subprocess
from typing import Final

from tests.chart.rendering import CHART
from tests.controlplane import tools

SUITES: Final = sorted((CHART / "tests").glob("*_test.yaml"))


def test_all_suites_pass() -> None:
    done = subprocess.run(
        [str(tools.helm_unittest()), "--strict", str(CHART)], capture_output=True, text=True, check=False
    )
    said = re.sub(r"\x1b\[\d+m", "", done.stdout)

    assert 0 == done.returncode, said
    assert f"Test Suites: {len(SUITES)} passed, {len(SUITES)} total" in said


def test_every_template_of_objects_has_a_suite_that_names_it() -> None:
    text = "".join(it.read_text() for it in SUITES)
    templates = {it.relative_to(CHART / "templates").as_posix() for it in (CHART / "templates").rglob("*.yaml")}

    elsewhere = {"rbac.yaml", "rbac-scheduler.yaml", "leases.yaml", "validate.yaml"}
    assert elsewhere < templates
    assert [] == sorted(it for it in templates - elsewhere if it not in text)
