"""Reads one node with the pods on it, or one pod, past the picture: with parts of which the picture keeps nothing."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from app.feeds.documents import Page, read_page
from app.framework.node_info import NodeInfo
from app.kube.api_errors import ApiError, KubeError
from app.kube.api_requests import NODES, PODS, Resource
from app.kube.client import KubeClient
from app.kube.core_decoding import CoreV1
from app.kube.core_v1 import Pod
from app.kube.names import is_segment, is_subdomain
from app.writes.answers import as_requested

MOST_BYTES: Final = 4 << 20
"""Of the pods of a node: some hundred of the usual ones. To part them holds up the event loop for some milliseconds."""

_NOT_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_CACHED: Final = "0"
"""Served from the API server's memory, where pods are found by their node, as kubelets ask for theirs. It may lag by
moments.
"""

_SECONDS: Final = 2.0
_STEP: Final = 16
"""Pods decoded at a time."""

_NOT_FOUND: Final = 404


class ApiUncachedReader:
    """Asks the API server. Needs no right beyond those that the picture is read with."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def pod(self, core: CoreV1, namespace: str, name: str) -> Pod | None:
        """``None`` if there is none. Raises ``OSError`` if it cannot be said."""
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
        """The same of a node, with all pods that are bound to it and not finished."""
        if not is_subdomain(name):
            return None
        try:
            found = await self._page(NODES, f"metadata.name={name}")
            if not found.items:
                return None
            node = as_requested(core.decode_node(found.items[0]), "", name)
            info = NodeInfo(node)
            for at, item in enumerate((await self._page(PODS, f"spec.nodeName={name},{_NOT_FINISHED}")).items or ()):
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
