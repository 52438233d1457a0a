"""Rules of specs: how arguments are read, and how a plugin is built."""

from __future__ import annotations

from typing import Any

from app.kube.kinds import SERVICES
from tests.fakes import Alpha, SizeArgs, spec_of
from tests.harness import World


def test_arguments_carry_kind_and_version_as_in_a_scheduler_configuration() -> None:
    given = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "SizeArgs", "size": 3}

    assert given == SizeArgs.model_validate(given).model_dump()


def test_a_spec_builds_its_plugin_from_arguments_and_handle() -> None:
    handle = World().handle
    spec = spec_of(Alpha, SizeArgs, kinds=lambda args: (SERVICES,) * args.size)

    built: Any = spec.build(SizeArgs(size=2), handle)

    assert (SizeArgs(size=2), handle) == (built.args, built.handle)
    assert (SERVICES, SERVICES) == spec.needs(SizeArgs(size=2)).kinds
    assert "PluginSpec('Alpha')" == repr(spec)
