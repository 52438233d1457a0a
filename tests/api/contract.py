"""The extender/v1 contract, checked from outside: what kube-scheduler can read, and what it must never be told.

Read with plain ``json``: this shares no code with ``app.wire``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import httpx

from app.verbs.outcome import Verb

OK: Final = 200
INTERNAL_SERVER_ERROR: Final = 500
_SHALLOW: Final = 60
_MOST_CAUSES: Final = 20
_INT64: Final = range(-(2**63), 2**63)


def breaches(verb: Verb, request: bytes, response: httpx.Response) -> list[str]:
    """Every way in which ``response`` breaks the contract, in words; empty for a good one."""
    return [*_transport(response), *_body(verb, request, response)]


def status_breaches(response: httpx.Response) -> list[str]:
    """Every way in which an error is no ``Status`` as the API server of Kubernetes writes it, in words."""
    found = response.json()
    if not isinstance(found, dict):
        return [f"no object: {found}"]
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": response.status_code}
    wrong = [f"{name}: {found.get(name)}" for name, value in expected.items() if found.get(name) != value]
    wrong += [f"no {name}" for name in ("message", "reason") if not (isinstance(it := found.get(name), str) and it)]
    if more := found.keys() - expected.keys() - {"message", "reason", "details"}:
        wrong.append(f"other fields: {more}")
    if "details" in found:
        causes = found["details"]["causes"]
        if found["details"].keys() != {"causes"} or not 1 <= len(causes) <= _MOST_CAUSES:
            wrong.append(f"details: {found['details']}")
        wrong += [f"cause: {it}" for it in causes if it.keys() != {"reason", "message", "field"} or not it["message"]]
    return wrong


def _transport(response: httpx.Response) -> Iterator[str]:
    body = response.content
    if response.headers.get("content-length") != str(len(body)):
        yield f"Content-Length is {response.headers.get('content-length')} for {len(body)} bytes"
    if response.headers.get("content-type") != "application/json":
        yield f"Content-Type is {response.headers.get('content-type')}"
    if response.status_code != OK and body:
        yield f"{response.status_code} with a body: the caller loses its connection"
    if body != body.strip():
        yield "bytes around the JSON value"


def _body(verb: Verb, request: bytes, response: httpx.Response) -> Iterator[str]:
    if response.status_code != OK:
        if response.status_code != INTERNAL_SERVER_ERROR or verb in ("filter", "bind"):
            yield f"{verb} answered {response.status_code}"
        return
    try:
        answer = _read(response.content)
    except ValueError as error:
        yield f"no JSON: {error}"
        return
    yield from _CHECKS[verb](asked_of(request), answer)


def _filter(asked: dict[str, Any], answer: Any) -> Iterator[str]:
    fields = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    if not isinstance(answer, dict) or answer.keys() != fields:
        yield f"filter fields: {answer}"
        return
    if not isinstance(answer["Error"], str) or answer["FailedNodes"] != {}:
        yield f"Error or FailedNodes: {answer}"
    if answer["Error"]:
        if (answer["Nodes"], answer["NodeNames"], answer["FailedAndUnresolvableNodes"]) != (None, None, {}):
            yield "an Error beside a verdict"
        return
    yield from _verdict(asked, answer)


def _verdict(asked: dict[str, Any], answer: dict[str, Any]) -> Iterator[str]:
    by_name = asked.get("nodenames") is not None
    names = asked_names(asked)
    listed = answer["NodeNames"] if by_name else (answer["Nodes"] or {}).get("items")
    if answer["Nodes" if by_name else "NodeNames"] is not None:
        yield "both forms"
    if not isinstance(listed, list):
        yield "the list that was asked for is missing"
        return
    passed = listed if by_name else [_name_of(node) for node in listed]
    failed = answer["FailedAndUnresolvableNodes"]
    if not all(isinstance(reason, str) and reason for reason in failed.values()):
        yield f"reasons: {failed}"
    if passed != [name for name in names if name not in failed] or not failed.keys() <= set(names):
        yield f"{passed} and {failed} are no split of {names}"


def _prioritize(asked: dict[str, Any], answer: Any) -> Iterator[str]:
    if not isinstance(answer, list):
        yield f"prioritize answered {answer}"
        return
    if [it["Host"] for it in answer] != list(dict.fromkeys(asked_names(asked))):
        yield f"{answer} does not score each of {asked_names(asked)} once"
    for it in answer:
        if it.keys() != {"Host", "Score"} or type(it["Score"]) is not int or not 0 <= it["Score"] <= 100:
            yield f"score {it}"


def _preempt(asked: dict[str, Any], answer: Any) -> Iterator[str]:
    if not isinstance(answer, dict) or answer.keys() != {"NodeNameToMetaVictims"}:
        yield f"preempt fields: {answer}"
        return
    victims = answer["NodeNameToMetaVictims"]
    if not isinstance(victims, dict):
        yield f"victims {victims}"
        return
    given = asked.get("nodenametometavictims") or asked.get("nodenametovictims") or {}
    for name, found in victims.items():
        if name not in given:
            yield f"{name} was not asked for"
        if (
            not isinstance(found, dict)
            or found.keys() != {"Pods", "NumPDBViolations"}
            or not found["Pods"]
            or not all(pod.keys() == {"UID"} and isinstance(pod["UID"], str) for pod in found["Pods"])
        ):
            yield f"victims of {name}: {found}"
        elif type(found["NumPDBViolations"]) is not int or found["NumPDBViolations"] not in _INT64:
            yield f"PDB violations of {name}: {found}"


def _bind(_: dict[str, Any], answer: Any) -> Iterator[str]:
    if not isinstance(answer, dict) or answer.keys() != {"Error"} or not isinstance(answer["Error"], str):
        yield f"bind answered {answer}"


_CHECKS: Final = {"filter": _filter, "prioritize": _prioritize, "preempt": _preempt, "bind": _bind}


def _read(body: bytes) -> Any:
    """As lenient as Go with bytes that are no UTF-8: whole nodes are sent back as they came."""
    return json.loads(body.decode("utf-8", "surrogateescape"), strict=False)


def _shallow(body: bytes) -> bytes:
    """The document with ``null`` for what lies deeper than 60 levels, byte by byte."""
    kept = bytearray()
    depth, in_string, escaped = 0, False, False
    for byte in body:
        begins = not in_string and byte in b"[{"
        ends = not in_string and byte in b"]}"
        depth += begins
        if depth <= _SHALLOW:
            kept.append(byte)
        elif begins and depth == _SHALLOW + 1:
            kept += b"null"
        depth -= ends
        in_string ^= byte == ord('"') and not escaped
        escaped = byte == ord("\\") and not escaped
    return bytes(kept)


def asked_of(request: bytes) -> dict[str, Any]:
    """The request with keys in lower case, as Go compares them; empty if it is none."""
    try:
        try:
            found = _read(request)
        except RecursionError:
            found = _read(_shallow(request))
    except ValueError:
        return {}
    return {key.lower(): value for key, value in found.items()} if isinstance(found, dict) else {}


def asked_names(asked: dict[str, Any]) -> list[str]:
    """The names of the nodes a request asks about, in its order."""
    names = asked.get("nodenames")
    if names is not None:
        return [name or "" for name in names]
    nodes = {key.lower(): value for key, value in (asked.get("nodes") or {}).items()}
    return list(dict.fromkeys(_name_of(node) for node in nodes.get("items") or ()))


def _name_of(node: Any) -> str:
    metadata: dict[str, Any] = next((value for key, value in reversed(node.items()) if key.lower() == "metadata"), {})
    return next((str(value) for key, value in reversed(metadata.items()) if key.lower() == "name"), "")
