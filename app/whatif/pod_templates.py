"""Reads pod templates of manifests, and completes them as the API server completes a new pod."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from app.config.manifest_fields import BadField, explained, mapping_at
from app.config.mistakes import Place
from app.kube.core_v1 import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, SPREAD, Pod
from app.kube.kinds import PODS
from app.kube.meta_v1 import LARGEST_PART
from app.kube.priority_classes import SYSTEM_PRIORITIES, PriorityClass
from app.kube.quantity import MalformedQuantity, OverlongQuantity, Quantity, parse_quantity
from app.kube.selectors import InvalidSelector, decode_selector, is_label_key, is_label_value

_CONTAINERS: Final = ("initContainers", "containers")
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_EVICTED_AFTER: Final = 300
"""Default ``tolerationSeconds`` for nodes that are unreachable or not ready."""

_NO_EXECUTE: Final = "NoExecute"
_SUPPORTED_OF_PODS: Final = ("cpu", "memory")
"""Resources besides huge pages that a pod, not only a container, can request."""

_HUGE_PAGES: Final = "hugepages-"
_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_WEIGHTED_TERMS: Final = "preferredDuringSchedulingIgnoredDuringExecution"

Decode = Callable[[bytes], Pod]


class PriorityClasses:
    """Priorities of new pods. ``classes``: PriorityClasses by name, of the request and of the snapshot."""

    def __init__(self, classes: Mapping[str, PriorityClass]) -> None:
        self._classes = classes
        self._default = max((it for it in classes.values() if it.is_default), key=lambda it: -it.value, default=None)

    def apply(self, spec: dict[str, Any]) -> str:
        """Set priority and preemption policy of a pod's spec by its PriorityClass.

        If the class is not known, ``spec.priority`` is kept, or set to 0 if it is missing. Return a text if it
        is set to 0 although the spec names a class; else an empty string.
        """
        name = spec.get("priorityClassName") or ""
        of_class = self._classes.get(name) if name else self._default
        if of_class is not None:
            spec["priority"] = of_class.value
            if of_class.policy:
                spec["preemptionPolicy"] = of_class.policy
        elif name in SYSTEM_PRIORITIES:
            spec["priority"] = SYSTEM_PRIORITIES[name]
        elif spec.get("priority") is None:
            spec["priority"] = 0
            return f"PriorityClass {name} is not known, so the priority is 0" if name else ""
        return ""


class PodTemplate(Struct, frozen=True):
    """Pod template, completed as the API server completes a pod. ``place``: path of the template in the object.

    ``approximate``: why real pods can differ; empty if no difference is known.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, Any]
    spec: Mapping[str, Any]
    place: Place
    approximate: str


def read_template(
    metadata: Mapping[str, Any], spec: Mapping[str, Any], place: Place, priorities: PriorityClasses
) -> PodTemplate:
    """Check and complete a pod template. ``metadata`` and ``spec``: its parts. Raises ``BadField``."""
    template = {"metadata": metadata, "spec": spec}
    labels = _labels(template, place)
    annotations = _in(place, lambda: mapping_at(template, ("metadata", "annotations")))
    identity = {"name": "template", "labels": labels, "annotations": annotations}
    bare = {key: value for key, value in spec.items() if key not in ("nodeName", "resourceClaimStatuses")}
    _check(decoded(PODS.decode, {"metadata": identity, "spec": bare}, place), place)
    _in(place, lambda: _check_containers(bare))
    completed = dict(bare)
    for field in _CONTAINERS:
        if bare.get(field):
            completed[field] = [_with_requests(it, (*place, "spec", field, n)) for n, it in enumerate(bare[field])]
    if isinstance(bare.get("resources"), dict):
        completed["resources"] = _pod_resources(bare["resources"], completed, (*place, "spec", "resources"))
    if bare.get("hostNetwork") is True:
        _add_host_ports(completed)
    tolerations = bare.get("tolerations") or ()
    completed["tolerations"] = [*tolerations, *_default_tolerations(tolerations)]
    if not isinstance(bare.get("priorityClassName") or "", str):
        raise BadField((*place, "spec", "priorityClassName"), "must be a string")
    reasons = [priorities.apply(completed)]
    if bare.get("runtimeClassName") and not bare.get("overhead"):
        reasons.append("the overhead of the RuntimeClass is not known")
    # once more, because limits have become requests
    decoded(PODS.decode, {"metadata": identity, "spec": completed}, place)
    return PodTemplate(labels, annotations, completed, place, "; ".join(filter(None, reasons)))


def spec_for(template: PodTemplate, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the spec of a pod with these labels. Raises ``BadField``.

    Like the API server, add ``matchLabelKeys`` and ``mismatchLabelKeys`` to the selectors of constraints and terms.
    """
    spec = dict(template.spec)
    constraints = spec.get("topologySpreadConstraints")
    if constraints:
        spec["topologySpreadConstraints"] = [_with_label_keys(it, labels) for it in constraints]
    if isinstance(spec.get("affinity"), dict):
        affinity = dict(spec["affinity"])
        for kind in ("podAffinity", "podAntiAffinity"):
            if affinity.get(kind):
                at = (*template.place, "spec", "affinity", kind)
                affinity[kind] = _in(at, partial(_with_keys_of_terms, affinity[kind], labels))
        spec["affinity"] = affinity
    return spec


def decoded(decode: Decode, pod: Mapping[str, Any], place: Place) -> Pod:
    """Decode a pod. Raises ``BadField`` with the path of the wrong field, below ``place``."""
    data = json_of(pod, place)
    try:
        return decode(data)
    except msgspec.DecodeError as error:
        field, message = explained(str(error), pod)
        raise BadField((*place, *field), message) from None
    except OverlongQuantity:
        raise BadField((*place, "spec"), "has a quantity that is too long") from None


def json_of(value: Any, place: Place) -> bytes:
    """Encode a value as JSON with sorted keys. Raises ``BadField`` if it cannot be encoded."""
    try:
        return msgspec.json.encode(value, order="sorted")
    except (TypeError, ValueError) as error:
        raise BadField(place, str(error)) from None


def check_selector(document: Mapping[str, Any], labels: Mapping[str, str], template: Place) -> None:
    """Check that ``spec.selector`` exists and matches the labels of the template, as the API server does.

    Raises ``BadField``.
    """
    place = ("spec", "selector")
    selector = mapping_at(document, place)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        raise BadField(place, "is missing")
    try:
        parsed = decode_selector(json_of(selector, place))
    except (InvalidSelector, msgspec.DecodeError) as error:
        raise BadField(place, str(error)) from None
    if parsed is not None and not parsed.matches(labels):
        raise BadField((*template, "metadata", "labels"), "the selector of the object does not match the labels")


def check_labels(labels: Mapping[str, Any], place: Place) -> None:
    """Raise ``BadField`` if a label has a key or value that the API server rejects."""
    for key, value in labels.items():
        if not isinstance(value, str):
            raise BadField((*place, key), "must be a string")
        if not is_label_key(key):
            raise BadField((*place, key), "is not a valid label key")
        if not is_label_value(value):
            raise BadField((*place, key), "is not a valid label value")


def _labels(template: Mapping[str, Any], place: Place) -> dict[str, str]:
    labels = _in(place, lambda: mapping_at(template, ("metadata", "labels")))
    texts = {key: "" if value is None else value for key, value in labels.items()}
    check_labels(texts, (*place, "metadata", "labels"))
    return texts


def _in(place: Place, read: Callable[[], Any]) -> Any:
    """Return the result of ``read``. If it raises ``BadField``, put ``place`` before the path of the field."""
    try:
        return read()
    except BadField as error:
        raise BadField((*place, *error.place), str(error)) from None


def _check(pod: Pod, place: Place) -> None:
    for field in pod.spec.oversized:
        raise BadField((*place, *field.split(".")), f"has more than {LARGEST_PART >> 10} KiB, or too many entries")
    if pod.spec.pod_affinity.invalid:
        raise BadField((*place, "spec", "affinity"), pod.spec.pod_affinity.invalid)
    for number, constraint in enumerate(pod.spec.spread):
        at = (*place, *SPREAD.split("."), number)
        if constraint.invalid:
            raise BadField((*at, "labelSelector"), constraint.invalid)
        if constraint.max_skew < 1:
            raise BadField((*at, "maxSkew"), "must be at least 1")
        if not is_label_key(constraint.topology_key):
            raise BadField((*at, "topologyKey"), "is not a valid label key")
        if constraint.when_unsatisfiable not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
            raise BadField((*at, "whenUnsatisfiable"), f"must be {DO_NOT_SCHEDULE} or {SCHEDULE_ANYWAY}")


def _check_containers(spec: Mapping[str, Any]) -> None:
    if not spec.get("containers"):
        raise BadField(("spec", "containers"), "must be a list of at least one container")
    names: set[str] = set()
    for field in _CONTAINERS:
        for number, container in enumerate(spec.get(field) or ()):
            name = container.get("name")
            if not name:
                raise BadField(("spec", field, number, "name"), "is missing")
            if name in names:
                raise BadField(("spec", field, number, "name"), "is the name of another container too")
            names.add(name)


def _with_requests(container: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return a container that requests its limit of each resource for which it has no request.

    Raises ``BadField``, for example if a request is above its limit.
    """
    resources = container.get("resources")
    if not resources:
        return dict(container)
    limits, requests = _amounts(resources, "limits", place), _amounts(resources, "requests", place)
    for name, request in requests.items():
        amount, limit = _quantity(request), _quantity(limits.get(name))
        if amount is not None and limit is not None and amount.exceeds(limit):
            raise BadField((*place, "resources", "requests", name), f"is more than the limit, {limits[name]}")
    if not limits:
        return dict(container)
    return {**container, "resources": {**resources, "requests": {**limits, **requests}}}


def _pod_resources(resources: Mapping[str, Any], spec: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return a pod's resources, with requests added from its limits of CPU, memory and huge pages.

    A limit is not added if the pod or one of its containers requests the resource.
    """
    limits, requests = _amounts(resources, "limits", place[:-1]), _amounts(resources, "requests", place[:-1])
    containers = [it for field in _CONTAINERS for it in spec.get(field) or ()]
    of_containers = {key for it in containers for key in (it.get("resources") or {}).get("requests") or ()}
    added = {
        key: limit
        for key, limit in limits.items()
        if key not in of_containers and (key in _SUPPORTED_OF_PODS or key.startswith(_HUGE_PAGES))
    }
    return {**resources, "requests": {**added, **requests}}


def _amounts(resources: Mapping[str, Any], field: str, place: Place) -> dict[str, Any]:
    amounts = resources.get(field)
    if amounts is None:
        return {}
    if not isinstance(amounts, dict):
        raise BadField((*place, "resources", field), "must be a mapping")
    for name, amount in amounts.items():
        quantity = _quantity(amount)
        if quantity is not None and quantity.value() < 0:
            raise BadField((*place, "resources", field, name), "must not be negative")
    return amounts


def _quantity(amount: Any) -> Quantity | None:
    """Return an amount; ``None`` if it is malformed or too long. The decoder of pods reports those that it reads."""
    try:
        return parse_quantity(str(amount).encode(errors="replace"))
    except (MalformedQuantity, OverlongQuantity):
        return None


def _add_host_ports(spec: dict[str, Any]) -> None:
    for field in _CONTAINERS:
        if spec.get(field):
            spec[field] = [{**it, "ports": _host_ports(it["ports"])} if it.get("ports") else it for it in spec[field]]


def _host_ports(ports: Any) -> Any:
    """Return the ports of a container that uses its node's network. By default, ``hostPort`` is ``containerPort``.

    A value that is not a list is returned unchanged.
    """
    if not isinstance(ports, list):
        return ports
    return [
        {**it, "hostPort": it.get("containerPort")} if isinstance(it, dict) and not it.get("hostPort") else it
        for it in ports
    ]


def _default_tolerations(tolerations: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the tolerations that the API server adds to a new pod with these tolerations."""
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(
            (it.get("key") or key) == key and (it.get("effect") or _NO_EXECUTE) == _NO_EXECUTE for it in tolerations
        ):
            yield {"key": key, "operator": "Exists", "effect": _NO_EXECUTE, "tolerationSeconds": _EVICTED_AFTER}


def _with_label_keys(constraint: Any, labels: Mapping[str, str]) -> Any:
    """Return a constraint or term with its ``matchLabelKeys`` and ``mismatchLabelKeys`` added to its selector.

    Keys that ``labels`` lacks are not added. A constraint without a selector is returned unchanged.
    """
    selector = constraint.get("labelSelector")
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in _keys_in(constraint, field)
        if key in labels
    ]
    if selector is None or not added:
        return constraint
    expressions = [*(selector.get("matchExpressions") or ()), *added]
    return {**constraint, "labelSelector": {**selector, "matchExpressions": expressions}}


def _keys_in(constraint: Mapping[str, Any], field: str) -> Sequence[str]:
    keys = constraint.get(field) or ()
    if not isinstance(keys, list | tuple) or not all(isinstance(it, str) for it in keys):
        raise BadField((), f"{field} must be a list of strings")
    return keys


def _with_keys_of_terms(affinity: Any, labels: Mapping[str, str]) -> Any:
    """Apply ``_with_label_keys`` to each term of a pod affinity or anti-affinity."""
    added = dict(affinity)
    if affinity.get(_TERMS):
        added[_TERMS] = [_with_label_keys(it, labels) for it in affinity[_TERMS]]
    if affinity.get(_WEIGHTED_TERMS):
        added[_WEIGHTED_TERMS] = [
            {**it, "podAffinityTerm": _with_label_keys(it["podAffinityTerm"], labels)}
            if it.get("podAffinityTerm")
            else it
            for it in affinity[_WEIGHTED_TERMS]
        ]
    return added
