"""Rules of specs: how arguments are read, and how a plugin is built."""

from __future__ import annotations

from typing import Any

from app.framework.cycle_state import CycleState
from app.framework.points import ReservePlugin
from app.framework.spec import PluginSpec
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
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


class ReservingAlpha(Alpha, ReservePlugin):
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return


def test_the_class_can_depend_on_the_arguments() -> None:
    """Then the plugin has an extension point only with the option that needs it."""
    spec = PluginSpec("Alpha", SizeArgs, Alpha, variant=lambda args: ReservingAlpha if args.size > 1 else Alpha)

    assert spec.for_args(SizeArgs(size=1)) is spec
    assert (Alpha, ReservingAlpha) == (spec.plugin, spec.for_args(SizeArgs(size=2)).plugin)
    assert spec_of(Alpha, SizeArgs).for_args(SizeArgs(size=2)).plugin is Alpha
