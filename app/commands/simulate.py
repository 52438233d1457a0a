"""``homeport simulate``: prints where the pods of manifests, or of a scaled workload, would go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.commands import table
from app.commands.output import BAD, GOOD, coloured, structured
from app.commands.plan_lines import notes, spread_lines, tied, waiting_lines
from app.commands.service import CommandError, Pages, UsageError
from app.commands.targets import kind_of, unknown_kind
from app.kube.names import shown
from app.lint.files import read_paths
from app.lint.manifests import ManifestObject

PATH: Final = "/api/v1/simulate"
SCALE: Final = "scale"

Json = Mapping[str, Any]

_OBJECT: Final = re.compile(r"objects\[([0-9]+)\]\.?(.*?): (.*)", re.DOTALL)
_TARGET: Final = re.compile(r"([^/=]+)/([^/=]+)=([0-9]{1,7})")
_SCALED: Final = re.compile(r"scale\[([0-9]+)\](?:\.[a-z]+)?: (.*)", re.DOTALL)
_NO_POD: Final = "has no pod that could be copied"
_MOST_ROWS: Final = 20
_MOST_VICTIMS: Final = 5


def answered(pages: Pages, files: Sequence[str], given: Sequence[str], namespace: str, *, preempts: bool) -> Json:
    """Return the answer for the manifests in ``files`` and ``given``.

    If ``given`` begins with ``scale``, workloads with replicas follow, and the manifests in ``files`` are their
    templates. Raises ``UsageError`` for a mistake in manifests or arguments, with file and line if possible, and
    ``CommandError`` for other failures.
    """
    targets = given[1:] if given[:1] == [SCALE] else None
    if targets == []:
        raise UsageError("simulate scale needs a workload and a number of replicas, such as deploy/web=12")
    scale = [_scale(it, namespace) for it in targets or ()]
    manifests = _read([*files, *(given if targets is None else ())])
    body = {"objects": [_json(it) for it in manifests], "scale": scale, "namespace": namespace, "preempt": preempts}
    try:
        return pages.post(PATH, body)
    except CommandError as failure:
        lines = str(failure).splitlines()
        if any(map(_OBJECT.match, lines)):
            raise UsageError("\n".join(_located(it, manifests) for it in lines)) from failure
        raise _of_scale(str(failure), targets or ()) from failure


def _read(paths: Sequence[str]) -> list[ManifestObject]:
    """Return the objects of manifests, without those inside ConfigMaps.

    Raises ``UsageError`` if a file or an object cannot be read, or if a path has no objects.
    """
    manifests, _ = read_paths(paths)
    if manifests.broken:
        raise UsageError("\n".join(map(str, manifests.broken)))
    return [it for it in manifests.objects if it.within is None]


def _of_scale(message: str, given: Sequence[str]) -> CommandError | UsageError:
    """Return the failure. Its message names the user's argument instead of the argument's number in the request.

    A workload without a pod to copy is a ``CommandError``, not wrong usage.
    """
    match = _SCALED.match(message)
    if match is None or int(match[1]) >= len(given):
        return CommandError(message)
    text = f"{shown(given[int(match[1])])}: {match[2]}"
    return CommandError(text) if _NO_POD in message else UsageError(text)


def _json(manifest: ManifestObject) -> dict[str, Any]:
    """Return a manifest's object. Raises ``UsageError`` if it has a value that JSON lacks, like a date or ``.nan``."""
    try:
        json.dumps(manifest.value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{manifest.file}:{manifest.line}: cannot be written as JSON: {error}") from None
    return dict(manifest.value)


def _scale(text: str, namespace: str) -> Json:
    match = _TARGET.fullmatch(text)
    if match is None:
        raise UsageError(f"{shown(text)} does not say what to scale: use KIND/NAME=REPLICAS, such as deploy/web=12")
    kind = kind_of(match[1])
    if kind is None:
        raise UsageError(unknown_kind(match[1]).replace("known are pod, ", "known are "))
    return {"namespace": namespace, "kind": kind, "name": match[2], "replicas": int(match[3])}


def _located(line: str, objects: Sequence[ManifestObject]) -> str:
    """Replace the number of an object, such as ``objects[3]``, by file and line; return other lines unchanged."""
    match = _OBJECT.match(line)
    if match is None or int(match[1]) >= len(objects):
        return line
    manifest = objects[int(match[1])]
    place = tuple(int(it) if it.isdecimal() else it for it in re.split(r"[.\[\]]+", match[2].strip("]")) if it)
    return f"{manifest.file}:{manifest.line_of(place)}: {match[2]}: {match[3]}"


def waits(answer: Json) -> bool:
    """Return true if a pod would wait, or was not tried."""
    return bool(answer["waiting"] or answer["notReached"])


def rendered(answer: Json, output: str) -> str:
    """Return the text to print."""
    text = structured(answer, output)
    if text is not None:
        return text
    if output == "name":
        return "\n".join(f"pod/{it['pod']}" for it in answer["pods"])
    return "\n".join(_lines(answer, wide=output == "wide"))


def _lines(answer: Json, *, wide: bool) -> Iterator[str]:
    yield _verdict(answer)
    if answer["pods"]:
        yield ""
        rows = [_row(it) for it in (answer["pods"] if wide else answer["pods"][:_MOST_ROWS])]
        yield from table.lines(("namespace", "pod", "node", "note"), rows)
        if len(rows) < len(answer["pods"]):
            yield f"and {len(answer['pods']) - len(rows)} more pods (-o wide lists all)"
    if answer["removed"]:
        yield ""
        yield "removed:"
        yield from (f"- {it['namespace']}/{it['pod']} on {it['nodeName'] or 'no node'}" for it in answer["removed"])
    for group in answer["waitingGroups"]:
        yield ""
        yield from waiting_lines(group)
    yield from spread_lines(answer["spread"])
    if answer["fullNodes"]:
        yield ""
        yield "nodes that are nearly full afterwards:"
        for node in answer["fullNodes"]:
            parts = (f"{name} {part:.0%}" for name, part in node["requested"].items())
            yield f"- {node['name']}: {', '.join(parts)}"
    if answer["notes"] or answer["ignored"]:
        yield ""
        yield from answer["notes"]
        if answer["ignored"]:
            yield f"without pods: {', '.join(answer['ignored'][:_MOST_ROWS])}"
    yield from notes(answer)


def _verdict(answer: Json) -> str:
    total = answer["placed"] + answer["waiting"] + answer["notReached"]
    if not total:
        return f"{len(answer['removed'])} pods would be removed, none added"
    text = f"{answer['placed']} of {total} pods would be placed"
    if answer["waiting"]:
        text += f", {answer['waiting']} would wait"
    if answer["notReached"]:
        text += f", {answer['notReached']} were not tried: there was no time left"
    return coloured(text, BAD if waits(answer) else GOOD)


def _row(pod: Json) -> tuple[str, str, str, str]:
    remarks = [pod["approximate"]] if pod["approximate"] else []
    if pod["ties"]:
        remarks.append(tied(pod["ties"]))
    if pod["victims"]:
        others = len(pod["victims"]) - _MOST_VICTIMS
        victims = ", ".join(pod["victims"][:_MOST_VICTIMS]) + (f" and {others} more" if others > 0 else "")
        remarks.append(f"evicts {victims}" if pod["nodeName"] else f"could evict {victims}")
    return pod["namespace"], pod["pod"], pod["nodeName"] or "waits", "; ".join(remarks) or "-"
