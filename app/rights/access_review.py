"""Checks with the API server that this process has all permissions that it needs, and reports the missing ones.

The check creates SelfSubjectAccessReviews (``authorization.k8s.io/v1``). The ClusterRole ``system:basic-user`` allows
every authenticated user to create them. The check runs in the background, so no verb waits for the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, NoReturn

import msgspec
import structlog
from msgspec import Struct

from app.kube.api_errors import KubeError
from app.kube.client import KubeClient
from app.kube.decoding import Decoder
from app.rights.permissions import EnabledFeatures, Permission, PermissionNeed, Rule, discovered, may_be_absent, rules

_LOG: Final = structlog.get_logger(__name__)
_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

AGAIN_SECONDS: Final = 60.0
"""Seconds until the next check if the last one failed or found a missing permission."""

STEADY_SECONDS: Final = 600.0
"""Seconds until the next check if all permissions are granted.

The check is repeated because permissions can be revoked. If a revoked permission is rarely used, only this check finds
the problem early.
"""

CURE: Final = "homeport rbac | kubectl apply -f -"
"""Command that grants the permissions that the configuration needs."""

_MOST_OF_A_RIGHT: Final = 70
_MOST_OF_A_PURPOSE: Final = 45
"""Maximum characters of a rule, and of its purpose, in a log line, so that the line has at most 200 characters.

``/readyz?verbose`` and the status page show the full text.
"""

Sleep = Callable[[float], Awaitable[None]]


class _ReviewStatus(Struct):
    allowed: bool = False


class _Review(Struct):
    status: _ReviewStatus


_REVIEWS: Final = Decoder[_Review](_Review)


def review(permission: Permission) -> dict[str, Any]:
    """Return the SelfSubjectAccessReview for a permission.

    An empty namespace or name is left out, which means all namespaces or all names.
    """
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }


class PermissionCheck:
    """Background task that checks all permissions, about two dozen, with one small request for each.

    ``missing``: rules that were not granted at the last successful check. ``problem``: why the last check failed; empty
    if it succeeded. ``on_checked``: called after each successful check with the number of missing permissions, without
    those that are needed only for explain (``only_explains``).
    """

    def __init__(
        self,
        client: KubeClient,
        work: EnabledFeatures,
        on_checked: Callable[[int], object] = lambda _: None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.missing: list[Rule] = []
        self.problem = "not checked yet"
        self._client = client
        self._work = work
        self._on_checked = on_checked
        self._sleep = sleep
        self._reported: set[Permission] = set()
        self._problem_logged = False

    async def run(self) -> NoReturn:
        """Check the permissions repeatedly until cancelled. A failed check is logged and retried."""
        while True:
            await self.check()
            await self._sleep(AGAIN_SECONDS if self.missing or self.problem else STEADY_SECONDS)

    async def check(self) -> None:
        """Check all permissions once. Log those that are missing, but were not at the last successful check."""
        try:
            missing = await self._missing_needs()
        except (KubeError, msgspec.DecodeError) as error:
            self._fail(str(error))
            return
        self.problem, self._problem_logged = "", False
        self.missing = rules(missing)
        self._report(missing)
        self._on_checked(len({need.permission for need in missing if not need.only_explains}))

    def _fail(self, cause: str) -> None:
        self.problem = cause
        if not self._problem_logged:
            self._problem_logged = True
            _LOG.warning("permissions cannot be checked", cause=cause)

    async def _missing_needs(self) -> list[PermissionNeed]:
        """Return the needs that are not granted.

        Kinds that the cluster does not serve are left out: Homeport treats them as kinds without objects.
        """
        kinds = await discovered(self._client, filter(may_be_absent, self._work.kinds))
        needs = self._work.needs(kinds.plurals, kinds.absent)
        allowed = {it: await self._allows(it) for it in dict.fromkeys(need.permission for need in needs)}
        return [need for need in needs if not allowed[need.permission]]

    async def _allows(self, permission: Permission) -> bool:
        """Return True if the API server grants the permission. Raises ``KubeError`` or ``msgspec.DecodeError``."""
        return _REVIEWS.decode(await self._client.review(_PATH, review(permission))).status.allowed

    def _report(self, missing: Collection[PermissionNeed]) -> None:
        """Log permissions that were not missing before, by rule, and log once when none is missing any more."""
        permissions = {need.permission for need in missing}
        for rule in rules(need for need in missing if need.permission not in self._reported):
            _LOG.warning(
                "right missing",
                right=_short(str(rule), _MOST_OF_A_RIGHT),
                needed_for=_short(rule.purpose, _MOST_OF_A_PURPOSE),
                cure=CURE,
            )
        if self._reported and not permissions:
            _LOG.info("all permissions granted")
        self._reported = permissions


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
