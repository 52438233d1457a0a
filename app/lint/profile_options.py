"""Rules about constraints of pods whose Homeport profile has the options ``beyond``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from app.kube.core_v1 import Pod
from app.lint.rules import MISSING_MIN_DOMAINS, Mistaken, Severity
from app.lint.templates import selects_own
from app.lint.workloads import LintedWorkload

_MOST_SHOWN: Final = 5


def with_profile_fields(workload: LintedWorkload, missing: Any) -> LintedWorkload:
    """Return the workload, with the fields that its constraints leave out filled in from ``missing``.

    The constraints keep their order. ``missing``: the profile's ``beyond.defaults``; ``None`` changes nothing.
    """
    pod: Pod | None = workload.pod
    if missing is None or pod is None or not pod.spec.spread:
        return workload
    spread = tuple(missing.filled(it)[0] for it in pod.spec.spread)
    return replace(workload, pod=replace(pod, spec=replace(pod.spec, spread=spread)))


def of_domains(workload: LintedWorkload, domains: Mapping[str, Collection[str]]) -> Iterator[Mistaken]:
    """Yield the hard constraints whose ``minDomains`` is less than the number of declared domains.

    DaemonSets, and constraints that do not select the workload's own pods, are left out. ``domains``: declared domains
    by topology key.
    """
    if workload.kind == "DaemonSet":
        return
    for number, constraint in workload.hard:
        declared = domains.get(constraint.topology_key, ())
        if len(declared) <= (constraint.min_domains or 1) or not selects_own(workload, constraint):
            continue
        named = ", ".join(sorted(declared)[:_MOST_SHOWN])
        rest = len(declared) - _MOST_SHOWN
        named += f" and {rest} more" if rest > 0 else ""
        yield Mistaken(
            MISSING_MIN_DOMAINS,
            Severity.WARNING,
            workload.constraint_place(number, "minDomains"),
            f"{constraint.topology_key} has {len(declared)} declared domains ({named}), and the constraint does not "
            "count those without a node: all pods can be in the others",
            f"set minDomains to {len(declared)}",
        )
