"""Asks the API server what this process may do, and says what is missing and what will not work then.

By SelfSubjectAccessReview (``authorization.k8s.io/v1``), which needs no right of its own: ``system:basic-user`` lets
everybody who is authenticated ask. Nothing waits for the answers.
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
from app.rights.permissions import Need, Permission, Rule, Work, discovered, may_be_absent, rules

_LOG: Final = structlog.get_logger(__name__)
_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

AGAIN_SECONDS: Final = 60.0
"""Between two rounds while something is missing, or could not be asked."""

STEADY_SECONDS: Final = 600.0
"""Between two rounds while all is well: rights are taken away, too, and some are used once a month."""

CURE: Final = "homeport rbac | kubectl apply -f -"
"""Grants what the configuration needs."""

_MOST_OF_A_RIGHT: Final = 70
_MOST_OF_A_PURPOSE: Final = 45
"""Maximum number of characters, so that a line has 200: ``/readyz?verbose`` and the status page have the whole."""

Sleep = Callable[[float], Awaitable[None]]


class _Verdict(Struct):
    allowed: bool = False


class _Review(Struct):
    status: _Verdict


_REVIEWS: Final = Decoder[_Review](_Review)


def review(asked: Permission) -> dict[str, Any]:
    """The question whether we are allowed something. A field that is left out stands for all."""
    resource, _, subresource = asked.resource.partition("/")
    attributes = {
        "verb": asked.verb,
        "group": asked.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": asked.namespace,
        "name": asked.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }


class PermissionCheck:
    """Some two dozen small requests a round, one after the other.

    ``missing`` are the rules that are not granted, as of the last round that got its answers; ``problem`` is why the
    last one did not, empty if it did. ``on_checked`` is told how many permissions are missing.
    """

    def __init__(
        self,
        client: KubeClient,
        work: Work,
        on_checked: Callable[[int], object] = lambda _: None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.missing: list[Rule] = []
        self.problem = "not checked yet"
        self._client = client
        self._work = work
        self._on_checked = on_checked
        self._sleep = sleep
        self._told: set[Permission] = set()
        self._told_problem = False

    async def run(self) -> NoReturn:
        """Check until cancelled, whatever the API server does."""
        while True:
            await self.check()
            await self._sleep(AGAIN_SECONDS if self.missing or self.problem else STEADY_SECONDS)

    async def check(self) -> None:
        """One round. What is new is said in the log: a line for each reason, once."""
        try:
            missing = await self._denied()
        except (KubeError, msgspec.DecodeError) as error:
            self._fail(str(error))
            return
        self.problem, self._told_problem = "", False
        self.missing = rules(missing)
        self._tell(missing)
        self._on_checked(len({need.permission for need in missing}))

    def _fail(self, cause: str) -> None:
        self.problem = cause
        if not self._told_problem:
            self._told_problem = True
            _LOG.warning("permissions cannot be checked", cause=cause)

    async def _denied(self) -> list[Need]:
        """Nothing is lost where a kind is not served: it counts as empty."""
        found = await discovered(self._client, filter(may_be_absent, self._work.kinds))
        needs = self._work.needs(found.plurals, found.absent)
        allowed = {it: await self._allows(it) for it in dict.fromkeys(need.permission for need in needs)}
        return [need for need in needs if not allowed[need.permission]]

    async def _allows(self, asked: Permission) -> bool:
        return _REVIEWS.decode(await self._client.review(_PATH, review(asked))).status.allowed

    def _tell(self, missing: Collection[Need]) -> None:
        permissions = {need.permission for need in missing}
        for rule in rules(need for need in missing if need.permission not in self._told):
            _LOG.warning(
                "right missing",
                right=_short(str(rule), _MOST_OF_A_RIGHT),
                needed_for=_short(rule.purpose, _MOST_OF_A_PURPOSE),
                cure=CURE,
            )
        if self._told and not permissions:
            _LOG.info("all rights are there now")
        self._told = permissions


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
