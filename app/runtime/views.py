"""What a plugin that does not read the cluster sees: of a pod the parts that it declares, of a node what it reads.

Pods of one signature are one to such a plugin. What it does not declare it cannot read: a verdict that is kept for one
pod can therefore not be wrong for another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from operator import attrgetter
from typing import Any, Final, NoReturn, cast

from app.framework.node_info import NodeInfo
from app.framework.parts import Part, paths_of_pod
from app.kube.core_v1 import Pod

_SPEC: Final = "spec."
_UNDECLARED: Final = ("namespace", "labels", "spec", "annotations", "owner")
"""What a plugin sees that declares no parts."""


class Undeclared(Exception):
    """A plugin read what it does not declare."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"read pod.{path}, which it does not declare: name it in PluginSpec.parts, or declare Reads.CLUSTER"
        )


class _PartialView:
    """Holds what is declared; anything else is a fault."""

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
    """A node for a plugin that declares to read no more: without the pods on it."""

    __slots__ = ()

    def __init__(self, info: NodeInfo) -> None:
        self.node = info.node

    def __getattr__(self, name: str) -> NoReturn:
        raise UndeclaredPods(name)


class UndeclaredPods(Exception):
    """A plugin read what is on a node, and declares that it reads the node alone."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"read the pods of a node ({name.strip('_')}), which it does not declare: declare Reads.PODS_ON_NODE"
        )


Signature = Callable[[Pod], Hashable]


class DeclaredParts:
    """The parts of one plugin, or of several that declare the same; and which parts are too long to be read."""

    def __init__(self, parts: Collection[Part] | None) -> None:
        paths = _UNDECLARED if parts is None else paths_of_pod(parts)
        self._whole = tuple(path for path in paths if not path.startswith(_SPEC))
        self._of_spec = tuple(path.removeprefix(_SPEC) for path in paths if path.startswith(_SPEC))
        self.signature: Signature = _signature(self._whole, self._of_spec)

    def view(self, pod: Pod) -> Pod:
        """The pod as the plugin sees it."""
        found = {name: getattr(pod, name) for name in self._whole}
        if "spec" not in found:
            spec = {name: getattr(pod.spec, name) for name in (*self._of_spec, "oversized")}
            found["spec"] = _PartialView("spec.", spec)
        return cast("Pod", _PartialView("", found))


def _signature(whole: tuple[str, ...], of_spec: tuple[str, ...]) -> Signature:
    """Equal for two pods if and only if the parts are. Specs and labels are interned: equal ones are one object.

    Which parts are too long to be read is always among them: such a one looks empty.
    """
    plain = [name for name in whole if name != "annotations"]
    read: Signature = attrgetter(*plain, *(_SPEC + name for name in (*of_spec, "oversized")))
    if "annotations" not in whole:
        return read
    return lambda pod: (read(pod), tuple(sorted(pod.annotations.items())))
