"""Models of the bodies of ``/api/v1/cycle``.

The models of answers are used only for the OpenAPI document. Answers are encoded without these models, because the
validation of 5,000 nodes would take too long.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import Raw, Struct
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from app.kube.decoding import Decoder, TooDeep

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding: the body is not JSON, is nested too deeply, or has other fields or types than expected."""

MOST_PENDING: Final = 1000
"""Maximum number of queued pods in a request. A scheduler that has more pods can send the oldest ones."""

MOST_NAMES: Final = 20_000
"""Maximum number of node names in a request: four times the 5,000 nodes that Kubernetes supports."""

MOST_VALUES: Final = 10_000
"""Maximum number of JSON objects and commas in an inline pod. Usual pods have hundreds, the largest ones thousands."""

MOST_OBJECTS: Final = 100_000
"""Maximum number of JSON objects in a body: a hundred for each of ``MOST_PENDING`` pods."""

_LONG_BYTES: Final = 64 << 10
"""Maximum bytes of a body that pydantic validates at once. In a longer body, objects, names and pods are counted first.
"""


class _Pending(Struct, forbid_unknown_fields=True, rename="camel"):
    """Fields of a ``PendingPod``, for ``require_bounded``."""

    pod: Raw = Raw(b"")
    namespace: str = ""
    name: str | None = None
    queued_at: str | float = 0.0


class _Body(Struct, forbid_unknown_fields=True, rename="camel"):
    """Fields of the requests of cycle and explain, for ``require_bounded``."""

    pod: Raw = Raw(b"")
    namespace: str = ""
    name: str | None = None
    nodes: list[str] | None = None
    pods: Raw = Raw(b"null")
    pending: bool = False
    scheduler_name: str | None = None
    node: str | None = None


_BODY: Final[Decoder[_Body]] = Decoder(_Body)
_PENDING: Final[Decoder[list[_Pending] | None]] = Decoder(list[_Pending] | None)
_PARTS: Final[Decoder[dict[str, Raw]]] = Decoder(dict[str, Raw])
_EACH: Final[Decoder[list[dict[str, Raw]]]] = Decoder(list[dict[str, Raw]])


def require_bounded(body: bytes) -> None:
    """Raise ``msgspec.DecodeError`` for a long body that exceeds a limit, or has wrong fields or types.

    The validation of such a body by pydantic would block the event loop. The error names only the first mistake,
    because a list of a million wrong names has a million mistakes.
    """
    if len(body) <= _LONG_BYTES:
        return
    _require_at_most(MOST_OBJECTS, body.count(b"{"), "objects")
    fields = _BODY.at_once(body)
    pending = _PENDING.at_once(fields.pods) or []
    _require_at_most(MOST_NAMES, len(fields.nodes or ()), "names in nodes")
    _require_at_most(MOST_PENDING, len(pending), "pods")
    if not all(bytes(pod)[:1] in (b"", b"{") for pod in (fields.pod, *(it.pod for it in pending))):
        raise msgspec.ValidationError("a pod is not an object")


def require_bounded_pod(raw: bytes) -> None:
    """Raise ``msgspec.DecodeError`` for an inline pod that would block the event loop while it is decoded."""
    _require_at_most(MOST_VALUES, raw.count(b"{") + raw.count(b","), "objects and commas")


def _require_at_most(most: int, number: int, what: str) -> None:
    if number > most:
        raise msgspec.ValidationError(f"at most {most} {what}, not {number}")


class CamelModel(BaseModel):
    """Model with JSON fields in camelCase. It rejects unknown fields."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class PodRequest(CamelModel):
    """Request about one pod: a pod of the cluster by name, or a whole inline pod."""

    pod: dict[str, Any] | None = Field(default=None, description="A Pod object of the Kubernetes API.")
    namespace: str = "default"
    name: str | None = Field(default=None, description="Name of a pod that Homeport knows, instead of pod.")

    _raw: bytes = PrivateAttr(b"")

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Parse a body. An inline pod stays raw, because it is decoded later; pydantic would decode it in vain.

        Raises ``msgspec.DecodeError`` for a body that is nested too deeply, and like ``require_bounded``.
        Raises pydantic's ``ValidationError`` for any other invalid body.
        """
        require_bounded(body)
        try:
            parts = _PARTS.at_once(body)
        except TooDeep:
            raise
        except UNREADABLE:
            parts = {}
        pod = bytes(parts.get("pod", b""))
        if not pod.startswith(b"{"):
            return cls.model_validate_json(body)  # the body names a pod, or is invalid
        request = cls.model_validate_json(msgspec.json.encode({**parts, "pod": {}}))
        request._raw = pod  # noqa: SLF001  # an attribute of this class
        return request

    @property
    def raw_pod(self) -> bytes:
        """JSON of the inline pod; empty if there is none."""
        return self._raw

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pod is None) == (self.name is None):
            raise ValueError("give either pod or name")
        return self


class PendingPod(PodRequest):
    """Pod in the caller's queue."""

    queued_at: AwareDatetime | FiniteFloat = Field(
        description="Time of queueing: RFC 3339, or seconds on one clock for all pods."
    )

    @property
    def seconds(self) -> float:
        """Time of queueing in seconds, on the caller's clock."""
        return self.queued_at.timestamp() if isinstance(self.queued_at, datetime) else self.queued_at


class CycleRequest(PodRequest):
    """Pod to schedule, or pods to choose from, and the nodes to consider."""

    nodes: list[str] | None = Field(default=None, description="Names to choose among; all nodes if absent.")
    pods: Annotated[
        list[PendingPod] | None,
        Field(min_length=1, max_length=MOST_PENDING),
        WithJsonSchema(
            {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_PENDING,
                "items": PendingPod.model_json_schema(),
                "description": "Queued pods, instead of pod or name. The cycle runs for the pod that the "
                "profile's queueSort puts first.",
            }
        ),
    ] = None

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Parse a body, like ``PodRequest.parse``. Inline pods in ``pods`` also stay raw."""
        require_bounded(body)
        try:
            parts: dict[str, Any] = {**_PARTS.at_once(body)}
            each = _EACH.at_once(bytes(parts.get("pods", b"")))
        except TooDeep:
            raise
        except UNREADABLE:
            return super().parse(body)
        raw = [bytes(it.get("pod", b"")) for it in each]
        parts["pods"] = [{**it, "pod": {}} if pod.startswith(b"{") else it for it, pod in zip(each, raw, strict=True)]
        request = cls.model_validate_json(msgspec.json.encode(parts))
        for pending, pod in zip(request.pods or (), raw, strict=True):
            pending._raw = pod  # noqa: SLF001  # an attribute of its base class
        return request

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pod, self.name, self.pods).count(None) != len(("pod", "name", "pods")) - 1:
            raise ValueError("give either pod, name or pods")
        return self


class PluginStatus(CamelModel):
    """Status of one or more plugins, with the codes of kube-scheduler's framework."""

    code: str = Field(description="Success, Unschedulable, UnschedulableAndUnresolvable, …")
    plugin: str = Field(description="Plugin that returned this status; empty for Success.")
    reasons: list[str]


class CycleVictims(BaseModel):
    """Pods to evict from one node, most important first."""

    pods: list[str] = Field(description="namespace/name")
    numPDBViolations: int = Field(description="Number of evictions that violate a PodDisruptionBudget.")  # noqa: N815  # name in kube-scheduler


class CycleResponse(CamelModel):
    """Result of one scheduling cycle."""

    pod: str = Field(description="namespace/name of the scheduled pod.")
    profile: str = Field(description="schedulerName of the profile; * for the profile of all other names.")
    preset: Literal["delegated", "complete"] = Field(
        description="Base of the profile. delegated: filters outside the profile are left to kube-scheduler."
    )
    pre_enqueue: PluginStatus = Field(description="If it is not Success, the pod is gated and no other point ran.")
    pre_filter: PluginStatus
    filter: dict[str, PluginStatus] = Field(description="Status by node.")
    scores: dict[str, dict[str, int]] = Field(description="By feasible node and plugin, 0..100, before weights.")
    totals: dict[str, int] = Field(description="Weighted sum by feasible node.")
    node: str | None = Field(
        description="The chosen node: bind the pod there with POST /bind. null if no node is feasible."
    )
    post_filter: PluginStatus | None = Field(description="Status of PostFilter; null if it did not run.")
    nominated_node: str | None = Field(
        description="Node that PostFilter nominates; empty to clear the nomination, null to leave it unchanged."
    )
    victims: CycleVictims | None = Field(
        description="Pods to evict before the pod fits on the nominated node. This call evicts no pod."
    )
