"""Requests are built without a network."""

from __future__ import annotations

import pytest

from app.kube.api_requests import (
    METADATA,
    METADATA_LIST,
    Request,
    Resource,
    discovery_request,
    get_request,
    list_request,
    patch_request,
    post_request,
    review_request,
    watch_request,
)
from tests.unit.app.kube.scripted import NODES, PODS, SETS


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        pytest.param(PODS, (), "/api/v1/pods", id="all namespaces of a core kind"),
        pytest.param(PODS, ("ns",), "/api/v1/namespaces/ns/pods", id="one namespace"),
        pytest.param(PODS, ("ns", "web", "binding"), "/api/v1/namespaces/ns/pods/web/binding", id="a subresource"),
        pytest.param(NODES, ("", "node-a"), "/api/v1/nodes/node-a", id="a kind without namespaces"),
        pytest.param(SETS, ("ns", "web"), "/apis/apps/v1/namespaces/ns/replicasets/web", id="a kind of a group"),
        pytest.param(PODS, ("ns", "..a?b#c"), "/api/v1/namespaces/ns/pods/..a%3Fb%23c", id="a name stays in its place"),
    ],
)
def test_paths(resource: Resource, arguments: tuple[str, ...], path: str) -> None:
    assert path == resource.path(*arguments)


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        pytest.param(discovery_request("v1"), Request("GET", "/api/v1"), id="discovery of core"),
        pytest.param(discovery_request("apps/v1"), Request("GET", "/apis/apps/v1"), id="discovery of a group"),
        pytest.param(list_request(PODS), Request("GET", "/api/v1/pods"), id="everything, newest"),
        pytest.param(
            list_request(PODS, limit=5, resource_version="7", field_selector="a=b"),
            Request("GET", "/api/v1/pods", (("limit", "5"), ("resourceVersion", "7"), ("fieldSelector", "a=b"))),
            id="first page",
        ),
        pytest.param(
            list_request(PODS, limit=5, resource_version="7", continue_="token"),
            Request("GET", "/api/v1/pods", (("limit", "5"), ("continue", "token"))),
            id="a later page goes without a version",
        ),
        pytest.param(
            list_request(SETS, metadata_only=True),
            Request("GET", "/apis/apps/v1/replicasets", accept=METADATA_LIST),
            id="a list of metadata",
        ),
        pytest.param(
            watch_request(PODS, resource_version="7", timeout_seconds=290),
            Request(
                "GET",
                "/api/v1/pods",
                (
                    ("watch", "true"),
                    ("allowWatchBookmarks", "true"),
                    ("resourceVersion", "7"),
                    ("timeoutSeconds", "290"),
                ),
            ),
            id="a watch",
        ),
        pytest.param(
            watch_request(SETS, resource_version="7", metadata_only=True, field_selector="a=b", bookmarks=False),
            Request(
                "GET",
                "/apis/apps/v1/replicasets",
                (("watch", "true"), ("resourceVersion", "7"), ("fieldSelector", "a=b")),
                accept=METADATA,
            ),
            id="a watch of metadata, without bookmarks",
        ),
        pytest.param(
            get_request(PODS, "ns", "web", metadata_only=True),
            Request("GET", "/api/v1/namespaces/ns/pods/web", accept=METADATA),
            id="metadata of one object",
        ),
        pytest.param(
            patch_request(PODS, "ns", "web", {"a": None}, subresource="status"),
            Request(
                "PATCH",
                "/api/v1/namespaces/ns/pods/web/status",
                body=b'{"a":null}',
                content_type="application/merge-patch+json",
            ),
            id="a merge patch",
        ),
        pytest.param(
            post_request("/api/v1/bindings", {"a": 1}),
            Request("POST", "/api/v1/bindings", body=b'{"a":1}', content_type="application/json"),
            id="a creation",
        ),
        pytest.param(
            review_request("/apis/x/v1/reviews", {"a": 1}),
            Request("POST", "/apis/x/v1/reviews", body=b'{"a":1}', content_type="application/json", is_review=True),
            id="a question that takes a POST",
        ),
    ],
)
def test_requests_are_built_without_a_network(built: Request, expected: Request) -> None:
    assert expected == built
