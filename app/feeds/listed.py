"""Snapshot of a live cluster for a command, without a service: credentials, client and listing in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from app.cache.cluster import Cluster
from app.feeds.listing import Progress, list_cluster
from app.kube.client import KubeClient
from app.kube.credentials import Login
from app.kube.kinds import Kind


def list_for(login: Login, cluster: Cluster, kinds: Iterable[Kind[Any]], progress: Progress) -> int:
    """List the cluster of ``login`` into the snapshot, as ``list_cluster`` does, and return the number of objects.

    Raises ``ListingError`` and ``CredentialsError``.
    """

    async def listed() -> int:
        async with KubeClient(login.credentials()) as client:
            return await list_cluster(client, cluster, kinds, progress)

    return asyncio.run(listed())
