"""Of the tests themselves: one module, one test file of its name, and no test that cannot fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"
FOLDERS: Final = ("api", "property")
"""Where a file of a module's name may be too: what shows only over HTTP, and what holds for any input."""

ELSEWHERE: Final = {
    "tests/api/test_overview.py": ["app/analysis/node_map.py", "app/wire/overview_v1.py"],
    "tests/api/test_cycle_explain.py": [
        "app/framework/explanation.py",
        "app/server/cycle.py",
        "app/server/bodies.py",
        "app/wire/cycle_v1.py",
        "app/wire/explain_v1.py",
        "app/server/explain.py",
    ],
    "tests/unit/app/analysis/test_remedies.py": [
        f"app/analysis/{name}.py" for name in ("change", "changes", "spread_changes")
    ],
    "tests/api/test_simulate.py": [
        *(f"app/whatif/{name}.py" for name in ("budget", "ephemeral", "mistakes", "pages", "reasons", "spread")),
        "app/whatif/models.py",
    ],
    "tests/unit/app/whatif/test_placing.py": ["app/whatif/scratch.py"],
    "tests/api/test_skew.py": ["app/analysis/pods_by_labels.py", "app/wire/skew_v1.py"],
    "tests/api/test_pending.py": [
        "app/analysis/workloads.py",
        "app/wire/pending_v1.py",
    ],
    "tests/unit/app/controllers/test_preemption.py": [
        *(f"app/controllers/{name}.py" for name in ("preemption_steps", "preemptor", "preemptors")),
        "app/memory/preemption_tracker.py",
    ],
    "tests/api/test_rebalance.py": ["app/homes/evictable.py"],
    "tests/unit/app/commands/test_pending.py": ["app/commands/paging.py"],
    "tests/unit/app/lint/test_linting.py": ["app/lint/rules.py"],
    "tests/unit/app/lint/test_placement.py": ["app/lint/facts.py"],
    "tests/unit/app/lint/test_workloads.py": ["app/config/manifest_fields.py"],
    "tests/contract/test_reads.py": ["app/framework/points.py"],
    "tests/unit/app/runtime/test_declared.py": ["app/framework/objects.py"],
    "tests/api/test_explain_command.py": [
        "app/commands/explain.py",
        "app/commands/common_flags.py",
        "app/commands/question_flags.py",
        "app/commands/what_if_flags.py",
    ],
    "tests/api/test_homes_command.py": ["app/commands/home_list.py", "app/commands/service.py"],
    "tests/api/test_saved_option.py": ["app/commands/dump.py", "app/commands/in_process.py"],
    "tests/api/test_figures.py": ["app/telemetry/metrics.py", "app/telemetry/certificates.py"],
    "tests/api/test_explain_bad_input.py": ["app/server/queries.py"],
    "tests/api/test_listeners.py": ["app/server/root.py"],
    "tests/api/test_operator.py": ["app/server/ops.py"],
    "tests/api/test_tracing.py": ["app/server/spans.py"],
    "tests/contract/test_wheel.py": ["homeport/__main__.py"],
    "tests/unit/app/cache/test_counters.py": [
        f"app/cache/{name}.py" for name in ("bounded", "recount", "selections", "topologies")
    ],
    "tests/unit/app/cache/test_cluster.py": ["app/cache/checking.py"],
    "tests/unit/app/cache/test_terms.py": ["app/cache/matches.py"],
    "tests/unit/app/kube/test_core_v1.py": [
        "app/kube/core_decoding.py",
        "app/kube/node_decoding.py",
        "app/kube/pod_decoding.py",
        "app/kube/services.py",
    ],
    "tests/unit/app/kube/test_persistent_volumes.py": ["app/kube/volume_affinity.py"],
    "tests/unit/app/kube/test_credentials.py": ["app/kube/credential_sources.py"],
    "tests/unit/app/kube/test_extras.py": ["app/kube/node_parts.py"],
    "tests/unit/app/kube/test_transport.py": ["app/kube/http_answers.py"],
    "tests/unit/app/replicas/test_lease.py": ["app/replicas/lease_record.py"],
    "tests/unit/app/runtime/test_profiles.py": ["app/runtime/building.py", "app/runtime/resolving.py"],
    "tests/unit/app/wire/test_extender_v1.py": ["app/wire/extender_answers.py", "app/wire/folding.py"],
    "tests/unit/plugins/in_tree/default_preemption/test_plugin.py": [
        f"plugins/in_tree/default_preemption/{name}.py" for name in ("budgets", "victims")
    ],
    "tests/unit/app/config/test_settings.py": [
        f"app/config/{name}.py"
        for name in ("document", "flags", "loading", "mistakes", "sections", "sources", "variables")
    ],
    "tests/unit/app/feeds/test_saved.py": ["app/feeds/feed.py"],
    "tests/unit/app/kube/test_client.py": ["app/kube/retiring.py"],
    "tests/unit/app/kube/test_resource_v1.py": [f"app/kube/resource_{name}.py" for name in ("claims", "slices")],
    "tests/unit/app/commands/test_drain.py": ["app/commands/plan_lines.py"],
    "tests/unit/app/rights/test_permissions.py": ["app/framework/uses.py"],
    "tests/unit/app/server/test_protocol.py": ["app/server/deadlines.py"],
    "tests/unit/app/test_main.py": ["app/__main__.py", "app/commands/arguments.py", "app/wiring.py"],
    "tests/unit/app/homes/test_lists.py": ["app/homes/protocol.py"],
    "tests/unit/app/whatif/test_draining.py": [
        "app/framework/evictions.py",
        "app/whatif/drain_models.py",
        "app/whatif/drain_plan.py",
    ],
    "tests/unit/app/whatif/test_rebalancing.py": [
        "app/analysis/skew_estimate.py",
        "app/whatif/rebalance_models.py",
        "app/whatif/rebalance_plan.py",
    ],
    "tests/unit/app/analysis/test_evaluate.py": ["app/commands/evaluate.py", "app/analysis/verdict.py"],
    "tests/unit/app/verbs/test_filter.py": ["app/verbs/filter_answer.py", "app/verbs/outcome.py"],
    "tests/unit/app/verbs/test_stepwise.py": ["app/cache/pins.py"],
    "tests/unit/app/writes/test_events.py": ["app/framework/events.py", "app/writes/event_queue.py"],
    "tests/unit/plugins/in_tree/pod_topology_spread/test_defaults.py": ["app/framework/default_selectors.py"],
    "tests/unit/plugins/in_tree/pod_topology_spread/test_filtering.py": [
        f"plugins/in_tree/pod_topology_spread/{name}.py" for name in ("constraints", "plugin")
    ],
    "tests/unit/plugins/in_tree/dynamic_resources/test_allocator.py": [
        f"plugins/in_tree/dynamic_resources/{name}.py"
        for name in ("capacity", "constraints", "errors", "extended", "pools")
    ],
    "tests/unit/plugins/in_tree/dynamic_resources/test_cel.py": [
        f"plugins/in_tree/dynamic_resources/{name}.py"
        for name in ("cel_functions", "cel_scope", "cel_syntax", "cel_values")
    ],
    "tests/unit/plugins/in_tree/dynamic_resources/test_plugin.py": [
        f"plugins/in_tree/dynamic_resources/{name}.py"
        for name in ("args", "cached_allocator", "pod_claims", "readiness")
    ],
    "tests/unit/plugins/in_tree/dynamic_resources/test_inventory.py": [
        "plugins/in_tree/dynamic_resources/allocated_devices.py"
    ],
    "tests/unit/plugins/in_tree/node_volume_limits/test_plugin.py": [
        f"plugins/in_tree/node_volume_limits/{name}.py" for name in ("attachment_counts", "volume_resolver")
    ],
    "tests/unit/plugins/in_tree/volume_binding/test_plugin.py": [
        f"plugins/in_tree/volume_binding/{name}.py"
        for name in (
            *("args", "capacity_index", "changes", "evaluation", "free_volumes", "label_index"),
            *("pod_volume_claims", "pod_volumes", "volume_index"),
        )
    ],
    "tests/conformance/test_generated.py": [
        "plugins/in_tree/node_name.py",
        "plugins/in_tree/node_resources_fit/scoring.py",
    ],
    "tests/unit/plugins/in_tree/inter_pod_affinity/test_plugin.py": [
        f"plugins/in_tree/inter_pod_affinity/{name}.py" for name in ("filtering", "own", "scoring")
    ],
    "tests/unit/app/runtime/test_filters.py": ["app/runtime/precedence.py", "app/runtime/prefilter.py"],
    "tests/unit/app/runtime/test_cached_verdicts.py": [
        f"app/runtime/{name}.py" for name in ("cache_entries", "search", "snapshot", "verdict_cache")
    ],
    "tests/unit/app/feeds/test_live.py": ["app/writes/writes.py"],
    "tests/unit/app/writes/test_activator.py": ["app/framework/activation.py"],
    "tests/unit/app/cache/test_nodes.py": ["app/framework/listers.py"],
}
"""Modules without a file of their name, by the file that tests them: small parts of something, or ways to it."""

EXPECTING: Final = frozenset(
    {
        "raises",  # pytest
        "report",  # of a disruption: what it may cost at most
        "run_helm",
        "kubectl",
        "load",  # of YAML, where a key may not be there twice
        "until",  # of what is to come true within a time
    }
)
"""Calls that fail where something is not as it has to be."""

_TEST_FILES: Final = sorted(TESTS.rglob("test_*.py"))


def modules() -> list[str]:
    found = [it for room in ("app", "homeport", "plugins") for it in (ROOT / room).rglob("*.py")]
    return sorted(str(it.relative_to(ROOT)) for it in found if it.name != "__init__.py")


def has_own(module: str) -> bool:
    path = Path(module)
    name = f"test_{path.name}"
    return any(it.exists() for it in (TESTS / "unit" / path.parent / name, *(TESTS / at / name for at in FOLDERS)))


def test_a_module_has_a_test_file_of_its_name_or_one_that_is_named_here() -> None:
    elsewhere = {module for found in ELSEWHERE.values() for module in found}

    assert sorted(elsewhere) == [it for it in modules() if not has_own(it)]


def test_what_is_named_here_is_there() -> None:
    assert [] == [path for path in ELSEWHERE if not (ROOT / path).exists()]


@pytest.mark.parametrize("path", [pytest.param(it, id=str(it.relative_to(TESTS))) for it in _TEST_FILES])
def test_every_test_can_fail(path: Path) -> None:
    found = ast.parse(path.read_text(encoding="utf-8"))

    assert [] == [it.name for it in _tests(found) if not _expects(it)]


def _tests(found: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for it in ast.walk(found):
        if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef) and it.name.startswith("test_"):
            yield it


def _expects(test: ast.AST) -> bool:
    return any(
        isinstance(it, ast.Assert) or (isinstance(it, ast.Call) and _called(it) in EXPECTING) for it in ast.walk(test)
    )


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
