"""``homeport rbac``: prints the minimal roles for a configuration, and their bindings to an account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import yaml
from msgspec import Struct

from app.config.settings import Settings
from app.framework.spec import PluginSpec
from app.kube.kinds import Kind
from app.rights.permissions import Rule, discovered_at, group_of, guessed_plural, is_known, rules
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.wiring import work_of

_GROUP: Final = "rbac.authorization.k8s.io"
_API_VERSION: Final = f"{_GROUP}/v1"
_WIDTH: Final = 110
"""Width in characters at which the YAML is wrapped."""

_SOMEWHERE: Final = "127.0.0.1:1"
"""Placeholder for the pod's address, which does not affect the permissions."""

Object = dict[str, Any]
Guesses = Mapping[tuple[str, str], str]
"""Remarks on guessed plurals of kinds, by API group and plural."""


class Account(Struct, frozen=True):
    """Account to which the roles are bound: the user ``user``, or the service account ``name`` if ``user`` is empty.

    The roles have the name ``name``, too.
    """

    namespace: str
    name: str
    user: str = ""

    @property
    def subject(self) -> Object:
        if self.user:
            return {"kind": "User", "apiGroup": _GROUP, "name": self.user}
        return {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}


class Role(Struct, frozen=True):
    """Role of one namespace, or a ClusterRole if ``namespace`` is empty."""

    namespace: str
    rules: Sequence[Rule]


def given(kubeconfig: str | None) -> dict[str, Any]:
    """Return settings that replace those of the configuration: the API server instead of a saved cluster, and a
    placeholder for the address of the pod, because the configuration would be invalid without an address.
    """
    return {"cluster": None, "advertise_address": _SOMEWHERE} | ({"kubeconfig": kubeconfig} if kubeconfig else {})


def run(
    settings: Settings,
    specs: Iterable[PluginSpec[Any]],
    defaults: Mapping[str, int],
    account: Account,
    output: Literal["yaml", "json"],
) -> str:
    """Return the roles and bindings to print. Raises ``ProfileErrors`` for invalid profiles."""
    work = work_of(settings, resolve(settings.profiles, Registry(specs, defaults)))
    plurals, guesses = asyncio.run(_plurals(settings.kubeconfig, [it for it in work.kinds if not is_known(it)]))
    roles = _roles(rules(work.needs(plurals)))
    if output == "json":
        items = [it for role in roles for it in (_role(role, account), _binding(role, account))]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2) + "\n"
    return "".join(_documents(roles, account, guesses))


async def _plurals(kubeconfig: str | None, unknown: Sequence[Kind[Any]]) -> tuple[dict[Kind[Any], str], Guesses]:
    """Return the plurals of the ``unknown`` kinds that the cluster serves, and remarks on the guesses for the rest."""
    discovery = await discovered_at(kubeconfig, unknown) if unknown else ""
    plurals = {} if isinstance(discovery, str) else dict(discovery.plurals)
    cause = f"no cluster was reachable: {discovery}" if isinstance(discovery, str) else "the cluster does not serve it"
    guesses = {
        (group_of(kind), guessed_plural(kind)): f"the plural of {kind!r} is a guess, {' '.join(cause.split())}"
        for kind in unknown
        if kind not in plurals
    }
    return plurals, guesses


def _roles(all_rules: Sequence[Rule]) -> list[Role]:
    """Return the rules grouped into roles: first the ClusterRole, then a Role for each namespace."""
    namespaces = sorted({rule.namespace for rule in all_rules})
    return [Role(namespace, [rule for rule in all_rules if rule.namespace == namespace]) for namespace in namespaces]


def _role(role: Role, account: Account) -> Object:
    kind = "Role" if role.namespace else "ClusterRole"
    return {
        "apiVersion": _API_VERSION,
        "kind": kind,
        "metadata": _metadata(role, account),
        "rules": [_policy(it) for it in role.rules],
    }


def _metadata(role: Role, account: Account) -> Object:
    return {"name": account.name} | ({"namespace": role.namespace} if role.namespace else {})


def _policy(rule: Rule) -> Object:
    named = {"resourceNames": [rule.name]} if rule.name else {}
    return {"apiGroups": [rule.group], "resources": list(rule.resources), **named, "verbs": list(rule.verbs)}


def _binding(role: Role, account: Account) -> Object:
    kind = "Role" if role.namespace else "ClusterRole"
    return {
        "apiVersion": _API_VERSION,
        "kind": f"{kind}Binding",
        "metadata": _metadata(role, account),
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": account.name},
        "subjects": [account.subject],
    }


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes lists of strings in brackets, such as ``[get, list]``."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        words = all(isinstance(it, str) for it in sequence)
        return super().represent_sequence(tag, sequence, flow_style=words)


def _documents(roles: Sequence[Role], account: Account, guesses: Guesses) -> Iterable[str]:
    yield "# Permissions that Homeport needs for this configuration: the minimal role, each rule with its reason.\n"
    yield "# Made by: homeport rbac\n"
    for number, role in enumerate(roles):
        yield "---\n" if number else ""
        yield _dumped({**_role(role, account), "rules": []}).removesuffix(" []\n") + "\n"
        for rule in role.rules:
            yield from (f"# {line}\n" for line in _comment(rule, guesses))
            yield _dumped([_policy(rule)])
        yield "---\n"
        yield _dumped(_binding(role, account))


def _comment(rule: Rule, guesses: Guesses) -> Iterable[str]:
    yield from rule.reasons
    for resource in rule.resources:
        if (rule.group, resource) in guesses:
            yield guesses[rule.group, resource]


def _dumped(document: object) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=_WIDTH)
