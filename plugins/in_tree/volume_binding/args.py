"""``VolumeBindingArgs``: how long a bind waits for volumes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from app.framework.spec import PluginArgs


class VolumeBindingArgs(PluginArgs):
    """``bindTimeoutSeconds``: the longest time to wait for volumes; a bind that has less ends sooner."""

    bindTimeoutSeconds: Annotated[int, Field(ge=0)] = 600  # noqa: N815  # its name in KubeSchedulerConfiguration
    shape: None = None

    @field_validator("shape", mode="before")
    @classmethod
    def _without_a_gate(cls, shape: Any) -> None:
        if shape is not None:
            raise ValueError("remove it: it needs the feature gate StorageCapacityScoring, which is not known here")
