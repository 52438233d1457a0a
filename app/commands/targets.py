"""Parses the names of pods, workloads and their kinds on the command line, in kubectl's formats.

The kubectl plugin for krew contains this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from app.kube.names import is_label, shown

PODS: Final = ("pod", "pods", "po")
"""Names that kubectl accepts for the kind Pod."""

KINDS: Final = {
    "deploy": "Deployment",
    "deployment": "Deployment",
    "deployments": "Deployment",
    "sts": "StatefulSet",
    "statefulset": "StatefulSet",
    "statefulsets": "StatefulSet",
    "job": "Job",
    "jobs": "Job",
    "cj": "CronJob",
    "cronjob": "CronJob",
    "cronjobs": "CronJob",
    "rs": "ReplicaSet",
    "replicaset": "ReplicaSet",
    "replicasets": "ReplicaSet",
    "ds": "DaemonSet",
    "daemonset": "DaemonSet",
    "daemonsets": "DaemonSet",
    "rc": "ReplicationController",
    "replicationcontroller": "ReplicationController",
    "vm": "VirtualMachine",
    "vms": "VirtualMachine",
    "virtualmachine": "VirtualMachine",
    "virtualmachines": "VirtualMachine",
}
"""Kinds of workloads by the names that kubectl accepts."""


_GROUPS: Final = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "ReplicaSet": "apps",
    "DaemonSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
    "ReplicationController": "",
    "VirtualMachine": "kubevirt.io",
}
"""API groups of the kinds."""


class TargetError(Exception):
    """Raised if arguments of ``explain`` are invalid or do not fit together. The message is printed for the user."""


def kind_of(word: str) -> str | None:
    """Return the kind that a word names, such as ``deploy`` or ``deployment.apps``; ``None`` for other words."""
    name, dot, group = word.lower().partition(".")
    kind = KINDS.get(name)
    return kind if kind is None or not dot or group == _GROUPS[kind] else None


def collection_of(kind: str | None) -> tuple[str, str]:
    """Return the path of version ``v1`` of a kind's API group, and the kind's plural. ``kind``: ``None`` for pods."""
    group = "" if kind is None else _GROUPS[kind]
    return f"/apis/{group}/v1" if group else "/api/v1", "pods" if kind is None else f"{kind.lower()}s"


def unknown_kind(word: str) -> str:
    """Return the error message for a word that does not name a known kind."""
    return f"unknown kind {shown(word)}: known are pod, {', '.join(map(str.lower, _GROUPS))}"


def explained(
    target: str,
    selector: str,
    node: str,
    namespace: str | None,
    default: Callable[[], str],
    *,
    everywhere: bool = False,
) -> tuple[str, dict[str, str]]:
    """Return path and query of the page that explains the target. Raises ``TargetError``.

    ``target``: NAME, pod/NAME, KIND/NAME or NAMESPACE/NAME; empty with a ``selector``. ``namespace``: value of
    ``--namespace``, ``None`` without it. ``default``: function that returns the namespace of the context.
    ``everywhere``: true with ``--all-namespaces``, which fits a selector only.
    """
    if bool(target) == bool(selector):
        raise TargetError("explain needs a POD or -l SELECTOR, and not both")
    if everywhere and (target or node):
        raise TargetError("-A needs -l SELECTOR, without --node; for a POD, give its namespace with -n")
    if everywhere:
        return "/api/v1/explain", {"labelSelector": selector}
    first, slash, name = target.rpartition("/")
    kind = kind_of(first)
    if slash and kind is None and first.lower() not in PODS:
        if namespace not in (None, first):
            raise TargetError(f"{shown(target)} is in another namespace than -n {namespace}; or {unknown_kind(first)}")
        namespace = first
    if not name and not selector:
        raise TargetError(f"{shown(target)} has no name")
    path = f"/api/v1/explain/{namespace_of(namespace, default)}"
    if kind is None and not selector:
        return f"{path}/{quote(name, safe='')}", {"node": node} if node else {}
    if node:
        raise TargetError("--node is for one pod")
    return path, {"labelSelector": selector} if selector else {"kind": kind or "", "name": name}


def namespace_of(given: str | None, default: Callable[[], str]) -> str:
    """Return the namespace given by ``--namespace``, else the default one. Raises ``TargetError`` if it is invalid."""
    namespace = default() if given is None else given
    if not is_label(namespace):
        raise TargetError(f"{shown(namespace)} cannot be the name of a namespace")
    return namespace
