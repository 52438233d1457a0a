"""Views for plugins that do not read the whole cluster: pods with only the declared parts, and nodes without pods.

The signature of a pod is a hashable value of its declared parts. Pods of one signature look equal to such a plugin,
because it cannot read undeclared parts. So a verdict that is cached for one of these pods is valid for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from operator import attrgetter
from typing import Any, Final, NoReturn, cast

from app.framework.node_info import NodeInfo
from app.framework.parts import Part, paths_of_pod
from app.kube.core_v1 import Pod

_SPEC: Final = "spec."
_DEFAULT_PARTS: Final = ("namespace", "labels", "spec", "annotations", "owner")
"""Attributes of a pod that a plugin sees if its ``PluginSpec`` has no ``parts``."""


class Undeclared(Exception):
    """Error: a plugin read a part of a pod that it does not declare."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"read pod.{path}, which it does not declare: name it in PluginSpec.parts, or declare Reads.CLUSTER"
        )


class _PartialView:
    """View of a pod or its spec with only the declared attributes. Reading another one raises ``Undeclared``."""

    def __init__(self, path: str, parts: dict[str, Any]) -> None:
        self.__dict__.update(parts)
        self.__dict__["_path"] = path

    def __getattr__(self, name: str) -> NoReturn:
        raise Undeclared(self.__dict__["_path"] + name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"pods are shared and not to be changed: {name}")

    def __str__(self) -> str:
        return "a pod"


class NodeView(NodeInfo):
    """Node without its pods, for a plugin that declares ``Reads.NODE``."""

    __slots__ = ()

    def __init__(self, info: NodeInfo) -> None:
        self.node = info.node

    def __getattr__(self, name: str) -> NoReturn:
        raise UndeclaredPods(name)


class UndeclaredPods(Exception):
    """Error: a plugin read the pods of a node, although it declares to read only the Node object."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"read the pods of a node ({name.strip('_')}), which it does not declare: declare Reads.PODS_ON_NODE"
        )


Signature = Callable[[Pod], Hashable]
"""Function that returns a hashable value of the declared parts of a pod."""


class DeclaredParts:
    """Parts of a pod that a plugin declares. They define how the plugin sees a pod, and the signature of the pod.

    ``parts``: ``None`` for the default parts. Plugins with equal declarations share one object.
    """

    def __init__(self, parts: Collection[Part] | None) -> None:
        paths = _DEFAULT_PARTS if parts is None else paths_of_pod(parts)
        self._whole = tuple(path for path in paths if not path.startswith(_SPEC))
        self._of_spec = tuple(path.removeprefix(_SPEC) for path in paths if path.startswith(_SPEC))
        self.signature: Signature = _signature(self._whole, self._of_spec)

    def view(self, pod: Pod) -> Pod:
        """Return the pod as the plugin sees it."""
        parts = {name: getattr(pod, name) for name in self._whole}
        if "spec" not in parts:
            spec = {name: getattr(pod.spec, name) for name in (*self._of_spec, "oversized")}
            parts["spec"] = _PartialView("spec.", spec)
        return cast("Pod", _PartialView("", parts))


def _signature(whole: tuple[str, ...], of_spec: tuple[str, ...]) -> Signature:
    """Return a function whose values for two pods are equal exactly if the pods' declared parts are equal.

    It is fast, because equal specs and labels are interned as one object. Parts that are too long to be decoded look
    empty, so the value always includes the names of these parts.
    """
    plain = [name for name in whole if name != "annotations"]
    read: Signature = attrgetter(*plain, *(_SPEC + name for name in (*of_spec, "oversized")))
    if "annotations" not in whole:
        return read
    return lambda pod: (read(pod), tuple(sorted(pod.annotations.items())))
