"""Reads a pod, or a node with its pods, from the API server, including fields that the snapshot does not have."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from app.feeds.documents import NOT_FINISHED, Page, read_page
from app.framework.node_info import NodeInfo
from app.kube.api_errors import ApiError, KubeError
from app.kube.api_requests import NODES, PODS, Resource
from app.kube.client import KubeClient
from app.kube.core_decoding import CoreV1
from app.kube.core_v1 import Pod
from app.kube.names import is_segment, is_subdomain
from app.writes.answers import as_requested

MOST_BYTES: Final = 4 << 20
"""Maximum bytes of a list, enough for some hundred pods of a node. Larger lists would block the event loop for long."""

_CACHED: Final = "0"
"""Resource version 0: the API server can then answer from its cache, which indexes pods by node.

The cache can be slightly older than etcd.
"""

_SECONDS: Final = 2.0
"""Timeout of a request in seconds."""

_STEP: Final = 16
"""Number of pods that are decoded before other tasks can run."""

_NOT_FOUND: Final = 404


class ApiUncachedReader:
    """Reads from the API server. Implements ``analysis.UncachedReader``; needs only the permissions of the feed."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def pod(self, core: CoreV1, namespace: str, name: str) -> Pod | None:
        """Return the pod; ``None`` if it does not exist. Raises ``OSError`` if it cannot be read."""
        if not is_segment(namespace) or not is_segment(name):
            return None
        try:
            raw = await self._client.get(PODS, namespace, name, timeout=_SECONDS)
            return as_requested(core.decode_pod(raw), namespace, name)
        except ApiError as refused:
            if refused.status == _NOT_FOUND:
                return None
            raise OSError(str(refused)) from refused
        except (KubeError, msgspec.DecodeError) as cause:
            raise OSError(str(cause)) from cause

    async def node(self, core: CoreV1, name: str) -> NodeInfo | None:
        """Return the node with all unfinished pods that are bound to it; ``None`` if the node does not exist.

        Raises ``OSError`` if the node or its pods cannot be read.
        """
        if not is_subdomain(name):
            return None
        try:
            page = await self._page(NODES, f"metadata.name={name}")
            if not page.items:
                return None
            node = as_requested(core.decode_node(page.items[0]), "", name)
            info = NodeInfo(node)
            for at, item in enumerate((await self._page(PODS, f"spec.nodeName={name},{NOT_FINISHED}")).items or ()):
                if at % _STEP == 0:
                    await asyncio.sleep(0)
                pod = core.decode_pod(item)
                if pod.node_name == name:
                    info.pods[pod.uid] = pod
        except (KubeError, msgspec.DecodeError) as cause:
            raise OSError(str(cause)) from cause
        return info

    async def _page(self, resource: Resource, field_selector: str) -> Page:
        raw = await self._client.list_page(
            resource, resource_version=_CACHED, field_selector=field_selector, timeout=_SECONDS, most=MOST_BYTES
        )
        return await read_page(raw)
