"""Rules of specs: how arguments are read, and how a plugin is built."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.framework.spec import Reads
from app.kube.kinds import SERVICES
from tests.fakes import Alpha, NoArgs, SizeArgs, spec_of
from tests.harness import World


def test_arguments_carry_kind_and_version_as_in_a_scheduler_configuration() -> None:
    given = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "SizeArgs", "size": 3}

    assert given == SizeArgs.model_validate(given).model_dump()


@pytest.mark.parametrize(
    "given", [pytest.param({"sise": 1}, id="an unknown field"), pytest.param({"size": "big"}, id="a wrong type")]
)
def test_arguments_are_refused_as_a_whole(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SizeArgs.model_validate(given)


def test_arguments_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SizeArgs().size = 2  # type: ignore[misc]  # that is the rule


def test_a_spec_builds_its_plugin_from_arguments_and_handle() -> None:
    handle = World().handle
    spec = spec_of(Alpha, SizeArgs, kinds=lambda args: (SERVICES,) * args.size)

    built: Any = spec.build(SizeArgs(size=2), handle)

    assert (SizeArgs(size=2), handle) == (built.args, built.handle)
    assert (SERVICES, SERVICES) == spec.needs(SizeArgs(size=2)).kinds
    assert "PluginSpec('Alpha')" == repr(spec)


def test_a_spec_reads_the_cluster_and_no_further_kinds_unless_it_says_otherwise() -> None:
    spec = spec_of(Alpha)

    assert (Reads.CLUSTER, None, ()) == (spec.reads, spec.parts, spec.needs(NoArgs()).kinds)
