"""The bodies of ``/api/v1/cycle`` and ``/api/v1/explain``: what they ask, and what they answer.

Answers are written without these models, which say their form for the schema: 5,000 nodes are too many to be checked.
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
"""What a body raises that is no JSON, or no JSON of this form."""

MOST_PENDING: Final = 1000
"""Maximum number of pods to choose the next one from. A scheduler with more sends those that came first."""

MOST_NAMES: Final = 20_000
"""Maximum number of node names in a cycle: Kubernetes supports clusters of 5,000 nodes."""

MOST_VALUES: Final = 10_000
"""Maximum number of objects and commas in an inline pod. Pods have hundreds, the largest some thousands."""

MOST_OBJECTS: Final = 100_000
"""Maximum number of objects in a body: a hundred for each of ``MOST_PENDING`` pods."""

_LONG_BYTES: Final = 64 << 10
"""Length beyond which a body is checked for what would hold up the event loop before it is validated."""


class _Pending(Struct, forbid_unknown_fields=True, rename="camel"):
    pod: Raw = Raw(b"")
    namespace: str = ""
    name: str | None = None
    queued_at: str | float = 0.0


class _Body(Struct, forbid_unknown_fields=True, rename="camel"):
    pod: Raw = Raw(b"")
    namespace: str = ""
    name: str | None = None
    nodes: list[str] | None = None
    pods: Raw = Raw(b"null")
    pending: bool = False
    scheduler_name: str | None = None


_BODY: Final[Decoder[_Body]] = Decoder(_Body)
_PENDING: Final[Decoder[list[_Pending] | None]] = Decoder(list[_Pending] | None)
_PARTS: Final[Decoder[dict[str, Raw]]] = Decoder(dict[str, Raw])
_EACH: Final[Decoder[list[dict[str, Raw]]]] = Decoder(list[dict[str, Raw]])


def require_bounded(body: bytes) -> None:
    """Raise ``msgspec.DecodeError`` for a long body whose validation would hold up the event loop.

    Of such a body only the first mistake is reported: a list of a million wrong names is a million mistakes.
    """
    if len(body) <= _LONG_BYTES:
        return
    _require_at_most(MOST_OBJECTS, body.count(b"{"), "objects")
    found = _BODY.at_once(body)
    pending = _PENDING.at_once(found.pods) or []
    _require_at_most(MOST_NAMES, len(found.nodes or ()), "names in nodes")
    _require_at_most(MOST_PENDING, len(pending), "pods")
    if not all(bytes(pod)[:1] in (b"", b"{") for pod in (found.pod, *(it.pod for it in pending))):
        raise msgspec.ValidationError("a pod is not an object")


def require_bounded_pod(raw: bytes) -> None:
    """Raise ``msgspec.DecodeError`` for an inline pod whose decoding would hold up the event loop."""
    _require_at_most(MOST_VALUES, raw.count(b"{") + raw.count(b","), "objects and commas")


def _require_at_most(most: int, number: int, what: str) -> None:
    if number > most:
        raise msgspec.ValidationError(f"at most {most} {what}, not {number}")


class _CamelModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class PodRequest(_CamelModel):
    """A pod of the cluster by name, or one in the body."""

    pod: dict[str, Any] | None = Field(default=None, description="A Pod as the Kubernetes API has it.")
    namespace: str = "default"
    name: str | None = Field(default=None, description="Name of a pod that Homeport knows, instead of pod.")

    _raw: bytes = PrivateAttr(b"")

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """The pod stays as it came: as a dict it would take as long to make as everything else together.

        Raises ``msgspec.DecodeError`` for a body beyond the bounds, and pydantic's ``ValidationError``.
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
            return cls.model_validate_json(body)  # a name, or it says what is wrong
        asked = cls.model_validate_json(msgspec.json.encode({**parts, "pod": {}}))
        asked._raw = pod  # noqa: SLF001  # its own
        return asked

    @property
    def raw_pod(self) -> bytes:
        return self._raw

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pod is None) == (self.name is None):
            raise ValueError("give either pod or name")
        return self


class ExplainRequest(PodRequest):
    """What if it were looked for a node now, and by whom."""

    pending: bool = Field(default=False, description="As if the pod had no node yet.")
    scheduler_name: str | None = Field(default=None, description="By the profile of this name, not of the pod's own.")


class PendingPod(PodRequest):
    """A pod that waits for its turn."""

    queued_at: AwareDatetime | FiniteFloat = Field(
        description="Since when: RFC 3339, or seconds on any clock that is the same for all."
    )

    @property
    def seconds(self) -> float:
        return self.queued_at.timestamp() if isinstance(self.queued_at, datetime) else self.queued_at


class CycleRequest(PodRequest):
    """Which pod, and among which nodes."""

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
                "description": "Pods that wait, instead of pod or name: the cycle is run for the one that the "
                "profile's queueSort puts first.",
            }
        ),
    ] = None

    @classmethod
    def parse(cls, body: bytes) -> Self:
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
        asked = cls.model_validate_json(msgspec.json.encode(parts))
        for it, pod in zip(asked.pods or (), raw, strict=True):
            it._raw = pod  # noqa: SLF001  # its own
        return asked

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pod, self.name, self.pods).count(None) != len(("pod", "name", "pods")) - 1:
            raise ValueError("give either pod, name or pods")
        return self


class PluginStatus(_CamelModel):
    """A status in kube-scheduler's words."""

    code: str = Field(description="Success, Unschedulable, UnschedulableAndUnresolvable, …")
    plugin: str = Field(description="Who rejected; empty for Success.")
    reasons: list[str]


class CycleVictims(BaseModel):
    """Pods of one node, the most important first."""

    pods: list[str] = Field(description="namespace/name")
    numPDBViolations: int = Field(description="How many of them against a PodDisruptionBudget.")  # noqa: N815  # kube-scheduler's


class CycleResponse(_CamelModel):
    """One whole cycle."""

    pod: str = Field(description="namespace/name of the pod that it was run for.")
    profile: str = Field(description="schedulerName of the profile that answered; * for the one of all other names.")
    preset: Literal["delegated", "complete"] = Field(
        description="What that profile starts from. delegated: a kube-scheduler judges all else, and nobody does here."
    )
    pre_enqueue: PluginStatus = Field(
        description="Anything but Success: the pod is kept out, and nothing else was asked."
    )
    pre_filter: PluginStatus
    filter: dict[str, PluginStatus] = Field(description="By node.")
    scores: dict[str, dict[str, int]] = Field(description="By feasible node and plugin, 0..100, before weights.")
    totals: dict[str, int] = Field(description="Weighted sum by feasible node.")
    node: str | None = Field(description="The chosen node: bind the pod there with POST /bind.")
    post_filter: PluginStatus | None = Field(description="Where no node is feasible: what a plugin could do.")
    nominated_node: str | None = Field(
        description="What postFilter wants of status.nominatedNodeName; empty: nothing there."
    )
    victims: CycleVictims | None = Field(
        description="The pods that would have to leave the nominated node first. Homeport evicts nobody."
    )


class ExplanationTable(_CamelModel):
    """Facts in rows."""

    title: str
    columns: list[str]
    rows: list[list[str | int | bool]]


class PluginExplanation(_CamelModel):
    """What one plugin's answer rests on."""

    tables: list[ExplanationTable]
    unblock: list[str] = Field(description="Each one change that would let the pod in somewhere.")


class ExplainResponse(_CamelModel):
    """Why a pod may or may not go where."""

    pod: str = Field(description="namespace/name")
    scheduler_name: str = Field(description="schedulerName of the pod, or the one that the request names.")
    node_name: str = Field(description="The node that the pod is bound to, also with pending: true; empty: none.")
    profile: str = Field(description="schedulerName of the profile that answered; * for the one of all other names.")
    preset: Literal["delegated", "complete"] = Field(description="What that profile starts from.")
    not_judged: list[str] = Field(
        description="Filters of kube-scheduler's default profile that this profile does not run: they can reject a "
        "node that is feasible here."
    )
    pre_filter: PluginStatus
    feasible: list[str] = Field(description="The nodes that pass every filter of the profile.")
    nodes: dict[str, list[PluginStatus]] = Field(description="By node, the plugins that reject it.")
    plugins: dict[str, PluginExplanation]
