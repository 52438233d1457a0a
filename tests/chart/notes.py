"""What a person reads after an installation."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.chart.rendering import ALLOW_LOCAL, CHART, NAMESPACE, run_helm
from tests.controlplane.controlplane import ControlPlane

_HEAD = "NOTES:\n"


def notes_of(plane: ControlPlane, values: Path | Mapping[str, Any], helm: str = "helm-3") -> str:
    """The notes for values, of an installation that does not happen."""
    if isinstance(values, Mapping):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(dict(values), file)
            file.flush()
            return notes_of(plane, Path(file.name), helm)
    arguments = ["install", "homeport", str(CHART), f"--namespace={NAMESPACE}", "--dry-run=server", *ALLOW_LOCAL]
    said = run_helm(helm, *arguments, f"--values={values}", environment={"KUBECONFIG": str(plane.kubeconfig)})
    return said[said.index(_HEAD) + len(_HEAD) :]
