"""Domains that a profile knows even while they have no node, by topology key. They never affect a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct

from app.framework.handle import Clock, ProfileContext
from app.memory.fallbacks import FallbackTable

MOST_KEYS: Final = 16
"""Maximum number of topology keys whose domains are remembered."""

MOST_DOMAINS: Final = 100
"""Maximum number of remembered domains of a topology key."""


class _ProfileDomains(Struct, frozen=True):
    """Options of a profile. ``declared``: domains by topology key.

    ``remember``: seconds for which a domain stays known after it last had a node; ``None``: only declared ones are.
    """

    declared: Mapping[str, Collection[str]]
    remember: float | None


class DomainTable:
    """Declared domains by profile, and the last time at which each domain had a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._profiles: dict[str, _ProfileDomains] = {}
        self._seen: dict[str, dict[str, float]] = {}

    @property
    def is_used(self) -> bool:
        return bool(self._profiles)

    def of(self, profile: str) -> DomainsOfProfile:
        """Return the view for the plugins of one profile."""
        return DomainsOfProfile(self, profile)

    def declare(self, profile: str, domains: Mapping[str, Collection[str]], remember: float | None) -> None:
        """Set the options of a profile, see ``_ProfileDomains``."""
        self._profiles[profile] = _ProfileDomains(domains, remember)

    def keys(self, profile: str, keys: Collection[str]) -> Collection[str]:
        """Return the topology keys among ``keys`` for which ``missing`` can return domains."""
        known = self._profiles.get(profile)
        if known is None:
            return ()
        return keys if known.remember is not None else [key for key in keys if key in known.declared]

    def see(self, key: str, present: Collection[str]) -> None:
        """Record the domains of a key that have nodes now.

        At most ``MOST_DOMAINS`` of a key are remembered: those that had a node last. After ``MOST_KEYS`` keys, further
        keys are ignored.
        """
        if key not in self._seen and len(self._seen) >= MOST_KEYS:
            return
        times = self._seen.setdefault(key, {})
        times.update(dict.fromkeys(present, self._clock()))
        newest = sorted(times, key=times.__getitem__, reverse=True)[:MOST_DOMAINS]
        self._seen[key] = {value: times[value] for value in newest}

    def missing(self, profile: str, key: str, present: Collection[str]) -> list[str]:
        """Return, sorted, the domains of a key that the profile knows and that are not in ``present``."""
        known = self._profiles.get(profile)
        if known is None:
            return []
        domains = set(known.declared.get(key, ()))
        if known.remember is not None:
            oldest = self._clock() - known.remember
            domains |= {value for value, seen in self._seen.get(key, {}).items() if seen >= oldest}
        return sorted(domains.difference(present))


class DomainsOfProfile:
    """View of a ``DomainTable`` for one profile. Implements ``framework.KnownDomains``."""

    def __init__(self, table: DomainTable, profile: str) -> None:
        self._table = table
        self._profile = profile

    def declare(self, domains: Mapping[str, Collection[str]], remember: float | None) -> None:
        self._table.declare(self._profile, domains, remember)

    def missing(self, key: str, present: Collection[str]) -> Collection[str]:
        return self._table.missing(self._profile, key, present)


class SpreadTables(Struct, frozen=True):
    """Tables for ``beyond.fallback`` and the known domains of PodTopologySpread, for all profiles of the service."""

    fallbacks: FallbackTable
    domains: DomainTable

    def context_of(
        self, profile: str, serves: Callable[[str], bool], is_sample: Callable[[int], bool]
    ) -> ProfileContext:
        """Return the context for the plugins of a profile, with its views of the tables."""
        fallbacks, domains = self.fallbacks.of(profile), self.domains.of(profile)
        return ProfileContext(serves, is_sample=is_sample, fallbacks=fallbacks, known_domains=domains)
