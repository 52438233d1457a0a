"""Arguments of VolumeBinding."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from app.framework.spec import PluginArgs


class VolumeBindingArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``.

    ``bindTimeoutSeconds``: maximum time in seconds that a bind waits for volumes. An earlier deadline of the bind
    shortens the wait.
    """

    bindTimeoutSeconds: Annotated[int, Field(ge=0)] = 600  # noqa: N815  # its name in KubeSchedulerConfiguration
    shape: None = None

    @field_validator("shape", mode="before")
    @classmethod
    def _without_a_gate(cls, shape: Any) -> None:
        if shape is not None:
            raise ValueError("must be removed: it needs the feature gate StorageCapacityScoring, which Homeport lacks")
