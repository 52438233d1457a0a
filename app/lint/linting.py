"""Applies the rules to manifests and to the workloads of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from app.config.manifest_fields import BadField
from app.config.mistakes import meant, written
from app.config.profile import ANY
from app.kube.core_v1 import DEFAULT_SCHEDULER_NAME
from app.lint.configurations import (
    is_homeport,
    is_scheduler,
    of_grace,
    of_pairing,
    pairings,
    scheduler_names,
    spread_options,
)
from app.lint.facts import ClusterFacts
from app.lint.manifests import BrokenManifest, ManifestObject
from app.lint.placement import of_placement, of_scheduler
from app.lint.profile_options import of_domains, with_profile_fields
from app.lint.rules import RULES, TAINTED_DOMAINS, LintFinding, LintRule, Mistaken, Need
from app.lint.templates import of_template
from app.lint.workloads import LintedWorkload, check_read, has_template, workload_of
from app.runtime.registry import Registry

_IDS: Final = tuple(it.id for it in RULES)
T = TypeVar("T")


class LintReport(Struct, frozen=True):
    """Result of a run of the linter.

    ``broken``: parts of the input that cannot be judged, and repeated keys. ``notes``: unknown rule ids in comments and
    annotations. ``skipped``: rules that were not applied, because an input is missing. ``objects``: number of objects
    to which rules apply, including those that cannot be judged. ``ignored``: number of mistakes that comments and
    annotations ignore.
    """

    findings: tuple[LintFinding, ...]
    broken: tuple[BrokenManifest, ...]
    notes: tuple[BrokenManifest, ...]
    skipped: tuple[LintRule, ...]
    objects: int
    ignored: int


class Linter:
    """Collects the findings of one run. ``registry``: all plugins of Homeport. ``facts``: ``None`` without a cluster.

    ``namespace``: namespace of manifests that name none. Their constraints count the pods of this namespace.
    """

    def __init__(self, registry: Registry, facts: ClusterFacts | None, namespace: str = "") -> None:
        self._registry = registry
        self._facts = facts
        self._namespace = namespace
        self._schedulers: set[str] = set() if facts is None else set(facts.schedulers())
        self._is_paired = False
        self._spread_options: dict[str, Any] = {}
        self._findings: list[LintFinding] = []
        self._broken: list[BrokenManifest] = []
        self._notes: list[BrokenManifest] = []
        self._objects = 0
        self._ignored = 0

    def report(self) -> LintReport:
        """Return the report so far. Findings are sorted by line within each file; files by their first findings."""
        met = {Need.NOTHING}
        if self._facts is not None:
            met.add(Need.CLUSTER)
        if self._schedulers:
            met.add(Need.SCHEDULERS)
        if self._is_paired:
            met.add(Need.BOTH_CONFIGURATIONS)
        skipped = tuple(it for it in RULES if it.need not in met)
        broken, notes = tuple(self._broken), tuple(self._notes)
        files = {name: number for number, name in enumerate(dict.fromkeys(it.file for it in self._findings))}
        findings = tuple(sorted(self._findings, key=lambda it: (files[it.file], it.line)))
        return LintReport(findings, broken, notes, skipped, self._objects, self._ignored)

    def add_broken(self, broken: Iterable[BrokenManifest]) -> None:
        """Add messages about broken parts of the input."""
        self._broken.extend(broken)

    def add_workloads(self, workloads: Iterable[LintedWorkload], file: str = "") -> None:
        """Judge workloads of the cluster. ``file``: name of the saved cluster; empty for a live cluster."""
        for workload in workloads:
            self._objects += 1
            names = (workload.kind, workload.namespace, workload.name)
            self._note_unknown(workload.ignored, file, 0)
            try:
                if workload.pod is not None:
                    check_read(workload.pod, workload.template)
                for mistake in self._of_workload(workload):
                    self._add(mistake, names, workload.ignored, file, 0)
            except Exception as error:  # noqa: BLE001  # one object must not hide the others
                text = f"{written(error.place)}: {error}" if isinstance(error, BadField) else _unexpected(error)
                message = f"{workload.kind} {'/'.join(workload.key)}: {text}"
                self._broken.append(BrokenManifest(file or "cluster", 0, message))

    def add_manifests(self, manifests: Sequence[ManifestObject]) -> None:
        """Judge the objects of all files together, because some rules need two objects."""
        schedulers = [it for it in manifests if is_scheduler(it.value)]
        homeports = [it for it in manifests if is_homeport(it.value)]
        for scheduler in schedulers:
            self._schedulers |= {
                DEFAULT_SCHEDULER_NAME,
                *self._until_error(scheduler, scheduler_names(scheduler.value)),
            }
        for homeport in homeports:
            with suppress(BadField):  # Homeport refuses to start with such a configuration, and logs the mistake
                self._spread_options.update(spread_options(homeport.value, self._registry))
        for manifest in manifests:
            self._note_unknown(manifest.ignored, manifest.file, manifest.line)
            if has_template(manifest.value):
                self._add_template(manifest)
        for configuration in (*schedulers, *homeports):
            self._objects += 1
            self._add_all(configuration, of_grace(configuration.value))
        for pairing in pairings(schedulers, homeports):
            self._is_paired = True
            self._add_all(pairing.scheduler, of_pairing(pairing, self._registry))

    def _add_template(self, manifest: ManifestObject) -> None:
        """Judge an object with a pod template. If it cannot be decoded, it is added to the broken parts."""
        self._objects += 1
        try:
            workload = workload_of(manifest.value)
        except Exception as error:  # noqa: BLE001  # one object must not hide the others
            self._break(manifest, error)
            return
        self._note_unknown(workload.ignored, manifest.file, manifest.line)
        ignored = manifest.ignored | workload.ignored
        if workload.pod is not None and not workload.namespace and self._namespace:
            workload = replace(workload, pod=replace(workload.pod, namespace=self._namespace))
        self._add_all(manifest, self._of_workload(workload), ignored)

    def _of_workload(self, workload: LintedWorkload) -> Iterator[Mistaken]:
        """Yield the mistakes that the rules find in a workload."""
        options = self._options_of(workload)
        if options is not None:
            workload = with_profile_fields(workload, options.defaults)
            yield from of_domains(workload, options.domains)
        yield from of_template(workload)
        if self._facts is not None:
            mistakes = of_placement(workload, self._facts)
            is_ignored = options is not None and options.untolerated_domains == "Ignore"
            yield from (it for it in mistakes if not (is_ignored and it.rule is TAINTED_DOMAINS))
        if self._schedulers:
            yield from of_scheduler(workload, self._schedulers)

    def _options_of(self, workload: LintedWorkload) -> Any:
        """Return the options ``beyond`` for the pods' schedulerName, else those for ``ANY``; ``None`` without both."""
        name = "" if workload.pod is None else workload.pod.spec.scheduler_name
        return self._spread_options.get(name, self._spread_options.get(ANY))

    def _add_all(
        self, manifest: ManifestObject, mistakes: Iterable[Mistaken], ignored: frozenset[str] | None = None
    ) -> None:
        """Add the mistakes in an object. ``ignored``: ids of ignored rules; ``None``: those in ``manifest.ignored``."""
        named = (manifest.within or manifest).value
        metadata = named.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        names = (str(named["kind"]), str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        for mistake in self._until_error(manifest, mistakes):
            skips = manifest.ignored if ignored is None else ignored
            self._add(mistake, names, skips, manifest.file, manifest.line_of(mistake.place))

    def _add(
        self, mistake: Mistaken, names: tuple[str, str, str], ignored: Collection[str], file: str, line: int
    ) -> None:
        """Add a mistake to the findings, or only count it if its rule is ignored."""
        if mistake.rule.id in ignored:
            self._ignored += 1
            return
        kind, namespace, name = names
        self._findings.append(
            LintFinding(
                id=mistake.rule.id,
                severity=mistake.severity,
                file=file,
                line=line,
                kind=kind,
                namespace=namespace,
                name=name,
                field=written(mistake.place),
                message=mistake.message,
                fix=mistake.fix,
            )
        )

    def _until_error(self, manifest: ManifestObject, values: Iterable[T]) -> list[T]:
        """Return the values up to the first error, and add the error to the broken parts."""
        taken: list[T] = []
        try:
            taken.extend(values)
        except Exception as error:  # noqa: BLE001  # one object must not hide the others
            self._break(manifest, error)
        return taken

    def _break(self, manifest: ManifestObject, error: Exception) -> None:
        """Add a message about an object and its error to the broken parts, unless it is there already."""
        place = error.place if isinstance(error, BadField) else ()
        text = str(error) if isinstance(error, BadField) else _unexpected(error)
        named = f"{manifest.value['kind']} {_name(manifest)}"
        message = f"{named}: {written(place)}: {text}" if place else f"{named}: {text}"
        broken = BrokenManifest(manifest.file, manifest.line_of(place), message)
        if broken not in self._broken:
            self._broken.append(broken)

    def _note_unknown(self, ids: Collection[str], file: str, line: int) -> None:
        """Add a note for each of the ``ids`` in comments or annotations that no rule has."""
        for unknown in sorted(it for it in ids if it and it not in _IDS):
            message = f"homeport.dev/ignore: there is no rule {unknown}{meant(unknown, _IDS)}"
            self._notes.append(BrokenManifest(file or "cluster", line, message))


def _name(manifest: ManifestObject) -> str:
    named = (manifest.within or manifest).value.get("metadata")
    return str(named.get("name") or "") if isinstance(named, dict) else ""


def _unexpected(error: Exception) -> str:
    return f"cannot be judged: {type(error).__name__}: {error}"
