"""Builders of requests to the API server. A request is only data; ``app.kube.transport`` sends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from app.kube.api_errors import ApiError
from app.kube.names import is_segment, shown

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_BAD_REQUEST: Final = 400


@dataclass(frozen=True, slots=True)
class Resource:
    """API resource that serves the objects of a kind. ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str | None = None, subresource: str = "") -> str:
        """Return the path of an object or its ``subresource``, or of a collection if ``name`` is ``None``.

        A collection with an empty ``namespace`` spans all namespaces. Raises ``ApiError`` for a name or namespace that
        is not a single path segment, because it would lead to another path.
        """
        of_object = () if name is None else (name, *filter(None, (subresource,)))
        scope = ("namespaces", namespace) if self.namespaced and (namespace or of_object) else ()
        return _path(*_root(self.api_version), *scope, self.plural, *of_object)


PODS: Final = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
NODES: Final = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False)


@dataclass(frozen=True, slots=True)
class Request:
    """HTTP request to the API server. ``query`` contains pairs of name and value that are not encoded yet."""

    method: Literal["DELETE", "GET", "PATCH", "POST", "PUT"]
    path: str
    query: tuple[tuple[str, str], ...] = ()
    accept: str = JSON
    body: bytes = b""
    content_type: str = ""
    is_review: bool = False
    """True for a POST that stores nothing, for example a SelfSubjectAccessReview."""

    trace: tuple[tuple[str, str], ...] = ()
    """HTTP headers with the trace context; empty if the caller is not traced."""

    @property
    def writes(self) -> bool:
        """True unless the request is a GET or a review. A dry run counts as a write."""
        return self.method != "GET" and not self.is_review

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def discovery_request(api_version: str) -> Request:
    """Return a request for the list of resources of an API version, for example ``v1`` or ``apps/v1``."""
    return Request("GET", _path(*_root(api_version)))


def list_request(
    resource: Resource,
    *,
    limit: int = 0,
    continue_: str = "",
    resource_version: str = "",
    metadata_only: bool = False,
    field_selector: str = "",
) -> Request:
    """Return a request for one page of a list over all namespaces.

    With the defaults, the page contains all objects in their newest state. With ``continue_``, ``resource_version`` is
    omitted, because the token contains a version, and the API server rejects requests with two versions.
    """
    query = {
        "limit": str(limit or ""),
        "continue": continue_,
        "resourceVersion": "" if continue_ else resource_version,
        "fieldSelector": field_selector,
    }
    return Request("GET", resource.path(), _without_empty(query), METADATA_LIST if metadata_only else JSON)


def watch_request(
    resource: Resource,
    *,
    resource_version: str,
    metadata_only: bool = False,
    field_selector: str = "",
    timeout_seconds: int = 0,
    bookmarks: bool = True,
    namespace: str = "",
) -> Request:
    """Return a request for a watch of all events after ``resource_version``.

    An empty ``namespace`` means all namespaces. With ``metadata_only``, events have only the metadata of objects. The
    API server ends the watch without an error after ``timeout_seconds``; 0 means the API server's default.
    """
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true" if bookmarks else "",
        "resourceVersion": resource_version,
        "fieldSelector": field_selector,
        "timeoutSeconds": str(timeout_seconds or ""),
    }
    return Request("GET", resource.path(namespace), _without_empty(query), METADATA if metadata_only else JSON)


def get_request(resource: Resource, namespace: str, name: str, *, metadata_only: bool = False) -> Request:
    """Return a request for one object; with ``metadata_only``, for its PartialObjectMetadata."""
    return Request("GET", resource.path(namespace, name), accept=_accept(metadata_only))


def read_request(path: str, query: Mapping[str, str]) -> Request:
    """Return a GET request for a path that is already percent-encoded. Empty values of ``query`` are omitted."""
    return Request("GET", path, _without_empty(query))


def patch_request(
    resource: Resource,
    namespace: str,
    name: str,
    body: Mapping[str, Any],
    *,
    content_type: str = MERGE_PATCH,
    subresource: str = "",
    metadata_only: bool = False,
) -> Request:
    """Return a request to patch an object or its ``subresource``.

    With ``metadata_only``, the answer has only the metadata.
    """
    path = resource.path(namespace, name, subresource)
    sent = msgspec.json.encode(body)
    return Request("PATCH", path, accept=_accept(metadata_only), body=sent, content_type=content_type)


def put_request(path: str, body: Mapping[str, Any]) -> Request:
    return Request("PUT", path, body=msgspec.json.encode(body), content_type=JSON)


def post_request(path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Request:
    query = (("dryRun", "All"),) if dry_run else ()
    return Request("POST", path, query, body=msgspec.json.encode(body), content_type=JSON)


def delete_request(resource: Resource, namespace: str, name: str, uid: str, resource_version: str) -> Request:
    """Return a delete request that fails if the object has another UID or resourceVersion."""
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    sent = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})
    return Request("DELETE", resource.path(namespace, name), body=sent, content_type=JSON)


def review_request(path: str, body: Mapping[str, Any]) -> Request:
    """Return a POST that stores nothing; see ``Request.is_review``."""
    return Request("POST", path, body=msgspec.json.encode(body), content_type=JSON, is_review=True)


def _accept(metadata_only: bool) -> str:
    return METADATA if metadata_only else JSON


def _root(api_version: str) -> tuple[str, ...]:
    return ("apis", *api_version.split("/", 1)) if "/" in api_version else ("api", api_version)


def _path(*segments: str) -> str:
    """Return the path of these segments, percent-encoded. Raises ``ApiError`` for a segment that cannot be a name."""
    for segment in segments:
        if not is_segment(segment):
            raise ApiError(_BAD_REQUEST, "BadRequest", f"{shown(segment)} cannot be a name")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def _without_empty(query: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in query.items() if value)


PreSendCheck = Callable[[], None]
"""Callback that runs before a write is sent, see ``KubeClient.post``. If it raises, the write is not sent."""


def allow_write() -> None:
    """Do nothing, so that the write is sent. Default of parameters of type ``PreSendCheck``."""
