"""Makes helm/homeport/files/dashboard.json: python -m tests.observability.dashboard

The panels are written down here, row by row; places, ids and what every panel repeats are worked out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

FILE: Final = Path(__file__).parents[2] / "helm" / "homeport" / "files" / "dashboard.json"
WIDTH: Final = 24
"""Columns of Grafana's grid."""

_SCHEMA: Final = 39
"""Of Grafana 11; newer releases bring it up to their own."""

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_CHOSEN: Final = 'namespace=~"$namespace", pod=~"$pod"'

Json = dict[str, Any]


class Query(Struct, frozen=True):
    """``expr``: ``@`` stands for the matchers of the chosen namespace and pods."""

    expr: str
    legend: str = ""

    def written(self, ref: str, *, instant: bool, form: str) -> Json:
        found: Json = {
            "datasource": _SOURCE,
            "editorMode": "code",
            "expr": self.expr.replace("@", _CHOSEN),
            "legendFormat": self.legend or "__auto",
            "range": not instant,
            "instant": instant,
            "refId": ref,
        }
        return found if form == "time_series" else {**found, "format": form}


class Panel(Struct, frozen=True, kw_only=True):
    """``kind``: Grafana's panel type · ``good``: what is shown green, from there on the colours of ``steps``."""

    title: str
    text: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    lines: str = "linear"
    decimals: int | None = None
    least: float | None = 0
    steps: Sequence[tuple[str, float | None]] = (("green", None),)
    mappings: Sequence[Json] = ()

    def written(self, number: int, x: int, y: int) -> Json:
        now = self.kind in ("stat", "table", "bargauge")
        form = "table" if self.kind == "table" else "heatmap" if self.kind == "heatmap" else "time_series"
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.text,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [
                query.written(chr(ord("A") + place), instant=now, form=form) for place, query in enumerate(self.queries)
            ],
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": self._options(),
            **({"transformations": _TIDY} if self.kind == "table" else {}),
        }

    def _defaults(self) -> Json:
        found: Json = {
            "unit": self.unit,
            "mappings": list(self.mappings),
            "thresholds": {
                "mode": "absolute",
                "steps": [{"color": colour, "value": value} for colour, value in self.steps],
            },
        }
        if self.decimals is not None:
            found["decimals"] = self.decimals
        if self.least is not None:
            found["min"] = self.least
        if self.kind == "timeseries":
            found["color"] = {"mode": "palette-classic"}
            found["custom"] = {
                "drawStyle": "line",
                "lineInterpolation": self.lines,
                "lineWidth": 1,
                "fillOpacity": 25 if self.stacked else 8,
                "showPoints": "never",
                "spanNulls": False,
                "stacking": {"mode": "normal" if self.stacked else "none", "group": "A"},
            }
        else:
            found["color"] = {"mode": "thresholds"}
        return found

    def _options(self) -> Json:
        if self.kind == "timeseries":
            return {
                "legend": {
                    "displayMode": "table",
                    "placement": "bottom",
                    "showLegend": True,
                    "calcs": ["lastNotNull", "max"],
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        if self.kind == "heatmap":
            return {
                "calculate": False,
                "cellGap": 1,
                "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
                "yAxis": {"unit": self.unit},
                "tooltip": {"mode": "single", "yHistogram": False},
                "legend": {"show": True},
            }
        if self.kind == "table":
            return {"showHeader": True, "cellHeight": "sm"}
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
            "textMode": "auto",
            "orientation": "auto",
        }


_TIDY: Final = [{"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True, "__name__": True}}}]

_ERRORS: Final = "fault|not_ready|no_leader|bad_request|forbidden|out_of_time|overloaded"
_OURS: Final = "and on (namespace, pod, instance) homeport_build_info"
"""Other processes have metrics of these names, too."""

_BAD: Final = (("green", None), ("red", 1))


def _quantile(share: str, metric: str, by: str, more: str = "") -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket{{@{more}}}[$__rate_interval])))"


def _mean(metric: str, by: str, more: str = "") -> str:
    sums, counts = (f"sum by ({by}) (rate({metric}_{part}{{@{more}}}[$__rate_interval]))" for part in ("sum", "count"))
    return f"{sums} / {counts}"


def _rate(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{@{more}}}[$__rate_interval]))"


ROWS: Final[Sequence[tuple[str, Sequence[Panel]]]] = (
    (
        "At a glance",
        (
            Panel(
                title="Ready replicas",
                text="Replicas whose /readyz says that they can decide, or know who does.",
                queries=[Query("sum(homeport_ready{@})")],
                kind="stat",
                width=4,
                height=4,
                steps=(("red", None), ("green", 1)),
            ),
            Panel(
                title="Leaders",
                text="Replicas that hold the Lease: one. No data without leaderElection.",
                queries=[Query("sum by (name) (homeport_leader_election_master_status{@})", "{{name}}")],
                kind="stat",
                width=4,
                height=4,
                steps=(("red", None), ("green", 1), ("red", 2)),
            ),
            Panel(
                title="Pods bound",
                text="Pods bound through Homeport a second, over the last five minutes.",
                queries=[Query('sum(rate(homeport_requests_total{@, verb="bind", outcome="bound"}[5m]))')],
                unit="ops",
                kind="stat",
                width=4,
                height=4,
                decimals=2,
            ),
            Panel(
                title="Refused pods that wait",
                text="Pods that filter refused on every node when it was last asked, by plugin. A pod may "
                "count for several.",
                queries=[Query("max by (plugin) (homeport_unschedulable_pods{@})", "{{plugin}}")],
                kind="stat",
                width=4,
                height=4,
                steps=(("green", None), ("orange", 1)),
            ),
            Panel(
                title="Requests that failed",
                text="Share of all requests of the last five minutes that ended without a decision. Of those that a "
                "follower sent on, the leader's count is taken.",
                queries=[
                    Query(
                        f'sum(rate(homeport_requests_total{{@, outcome=~"{_ERRORS}"}}[5m]))'
                        ' / sum(rate(homeport_requests_total{@, outcome!="forwarded"}[5m]))'
                    )
                ],
                unit="percentunit",
                kind="stat",
                width=4,
                height=4,
                decimals=2,
                steps=(("green", None), ("orange", 0.01), ("red", 0.05)),
            ),
            Panel(
                title="Snapshot differs from a recount",
                text="Comparisons of the last day in which what is kept was not what a recount says. "
                "Anything but 0 is a fault.",
                queries=[Query('sum(increase(homeport_picture_checks_total{@, result="different"}[1d]))')],
                kind="stat",
                width=4,
                height=4,
                decimals=0,
                steps=_BAD,
            ),
        ),
    ),
    (
        "Decisions",
        (
            Panel(
                title="Requests by verb and outcome",
                text="What came of every request. With several replicas, one that was sent on counts twice: as "
                "forwarded, and by its outcome at the leader.",
                queries=[Query(_rate("homeport_requests_total", "verb, outcome"), "{{verb}} {{outcome}}")],
                unit="reqps",
                width=12,
                stacked=True,
            ),
            Panel(
                title="Time of a request, by verb",
                text="From reading the body to the answer: median and 99th percentile. bind includes the "
                "API server and waits at Permit.",
                queries=[
                    Query(_quantile("0.5", "homeport_request_duration_seconds", "verb"), "{{verb}} p50"),
                    Query(_quantile("0.99", "homeport_request_duration_seconds", "verb"), "{{verb}} p99"),
                    Query(_quantile("0.99", "homeport_forward_duration_seconds", "verb"), "{{verb}} sent on, p99"),
                ],
                unit="s",
                width=12,
            ),
            Panel(
                title="Time of filter",
                text="How many filter requests took how long.",
                queries=[
                    Query(
                        "sum by (le) (increase("
                        'homeport_request_duration_seconds_bucket{@, verb="filter"}[$__rate_interval]))',
                        "{{le}}",
                    )
                ],
                unit="s",
                kind="heatmap",
                width=12,
            ),
            Panel(
                title="Wait for binds on their way",
                text="What filter and prioritize wait for a bind that is due, where its outcome matters "
                "(dueBindWait): 99th percentile.",
                queries=[Query(_quantile("0.99", "homeport_due_bind_wait_seconds", "pod"), "{{pod}}")],
                unit="s",
                width=4,
            ),
            Panel(
                title="Nominations outside the sample",
                text="The sampling guard: pods that were refused on a whole sample and nominated to a node outside of "
                "it, and the effect of each nomination.",
                queries=[
                    Query(_rate("homeport_sampled_out_total", "namespace"), "pods"),
                    Query(_rate("homeport_nominations_total", "result"), "{{result}}"),
                ],
                unit="ops",
                width=4,
            ),
            Panel(
                title="Picks",
                text="Pods for which filter answered the best node alone (pick), and those of them that came back: "
                "the scheduler could not reserve the node, or its bind failed.",
                queries=[
                    Query(_rate("homeport_picks_total", "namespace"), "picked"),
                    Query(_rate("homeport_failed_picks_total", "namespace"), "came back"),
                ],
                unit="ops",
                width=4,
            ),
        ),
    ),
    (
        "Plugins",
        (
            Panel(
                title="Time of an extension point",
                text="All plugins of a point together, mean of the calls that were timed.",
                queries=[
                    Query(
                        _mean("homeport_framework_extension_point_duration_seconds", "extension_point"),
                        "{{extension_point}}",
                    )
                ],
                unit="s",
            ),
            Panel(
                title="Time of a plugin",
                text="One call of a plugin, mean of the calls that were timed.",
                queries=[
                    Query(
                        _mean("homeport_plugin_execution_duration_seconds", "plugin, extension_point"),
                        "{{plugin}} {{extension_point}}",
                    )
                ],
                unit="s",
            ),
            Panel(
                title="Plugin faults",
                text="Exceptions that left a plugin, invalid answers, and scores out of range. Should stay at 0.",
                queries=[
                    Query(
                        _rate("homeport_plugin_faults_total", "plugin, extension_point"),
                        "{{plugin}} {{extension_point}}",
                    ),
                    Query(_rate("homeport_scores_out_of_range_total", "plugin"), "{{plugin}} score out of range"),
                ],
                unit="ops",
            ),
        ),
    ),
    (
        "Refusals",
        (
            Panel(
                title="Refused pods by plugin and reason",
                text="Pods that filter refused on every node asked for, once for each plugin and reason "
                "among these nodes.",
                queries=[Query(_rate("homeport_refusals_total", "plugin, reason"), "{{plugin}}: {{reason}}")],
                unit="ops",
                width=12,
            ),
            Panel(
                title="Refused pods that wait",
                text="Pods refused on every node when filter was last asked, and not placed since.",
                queries=[
                    Query("max by (plugin, profile) (homeport_unschedulable_pods{@})", "{{plugin}} ({{profile}})")
                ],
                width=6,
                lines="stepAfter",
            ),
            Panel(
                title="Refusals remembered and computed",
                text="A refusal that nothing has changed since is answered from memory, at a hundredth of the cost.",
                queries=[Query(_rate("homeport_refusal_answers_total", "answer"), "{{answer}}")],
                unit="ops",
                width=6,
                stacked=True,
            ),
        ),
    ),
    (
        "Binds",
        (
            Panel(
                title="Binds by outcome",
                text="bind_conflict: no longer possible, or the pod changed; the pod is tried again after a back-off. "
                "bind_failed: the API server would not.",
                queries=[
                    Query(
                        _rate("homeport_requests_total", "outcome", ', verb="bind", outcome!="forwarded"'),
                        "{{outcome}}",
                    )
                ],
                unit="ops",
                stacked=True,
                width=6,
            ),
            Panel(
                title="Share of conflicts",
                text="Of all binds that were decided.",
                queries=[
                    Query(
                        'sum(rate(homeport_requests_total{@, verb="bind", outcome="bind_conflict"}[$__rate_interval]))'
                        ' / sum(rate(homeport_requests_total{@, verb="bind", outcome!="forwarded"}[$__rate_interval]))',
                        "conflicts",
                    )
                ],
                unit="percentunit",
                width=4,
            ),
            Panel(
                title="Pods on their way",
                text="Pods whose binding is under way, or taken and not yet shown by the watch.",
                queries=[Query("max by (pod) (homeport_assumed_pods{@})", "{{pod}}")],
                width=4,
            ),
            Panel(
                title="Held to leave together",
                text="How long Bindings were held, of those that were (bindBatchWindow): 99th percentile.",
                queries=[Query(_quantile("0.99", "homeport_bind_batch_wait_seconds", "pod"), "{{pod}}")],
                unit="s",
                width=4,
            ),
            Panel(
                title="Waits at Permit",
                text="How long pods waited at Permit, by what came of it: mean.",
                queries=[Query(_mean("homeport_permit_wait_duration_seconds", "result"), "{{result}}")],
                unit="s",
                width=6,
            ),
        ),
    ),
    (
        "Homes",
        (
            Panel(
                title="Homes by state",
                text="Recorded homes: at_home, away (its pod runs elsewhere), waiting (its pod waits), idle (no pod), "
                "node_gone (the node is not in the cluster). unrecorded: not written on the owner yet.",
                queries=[Query("max by (state) (homeport_homes{@})", "{{state}}")],
                width=12,
                stacked=True,
                lines="stepAfter",
            ),
            Panel(
                title="Longest wait for a home",
                text="Age of the oldest pod that waits and has a home.",
                queries=[Query("max(homeport_homes_longest_wait_seconds{@})", "oldest pod")],
                unit="s",
                width=6,
            ),
            Panel(
                title="Homes out of order",
                text="Homes whose pods are elsewhere or wait, whose node is gone, or that are not written yet.",
                queries=[Query('max by (state) (homeport_homes{@, state!~"at_home|idle"})', "{{state}}")],
                kind="stat",
                width=6,
                steps=(("green", None), ("orange", 1)),
            ),
            Panel(
                title="Homes by what their node is like",
                text="Homes whose node is away (cordoned, not Ready, maintained), leaving, gone or another machine.",
                queries=[
                    Query(
                        "sum by (standing) "
                        '(max by (standing, policy) (homeport_homes_by_standing{@, standing!="usable"}))',
                        "{{standing}}",
                    )
                ],
                width=12,
                stacked=True,
                lines="stepAfter",
            ),
            Panel(
                title="Nodes that keep homes from their pods",
                text="Homes that are not usable, on the ten nodes with most of them.",
                queries=[Query("max by (node) (homeport_homes_unusable{@})", "{{node}}")],
                width=12,
                stacked=True,
                lines="stepAfter",
            ),
        ),
    ),
    (
        "Spreading",
        (
            Panel(
                title="Largest skew by topology key",
                text="By how many pods the fullest domain is ahead of the emptiest, the largest of all constraints "
                "asked for. Compare with their maxSkew; soft constraints may go beyond it.",
                queries=[Query("max by (topology_key) (homeport_topology_skew{@})", "{{topology_key}}")],
                width=24,
                lines="stepAfter",
            ),
        ),
    ),
    (
        "Replicas",
        (
            Panel(
                title="Who leads",
                text="1 for the replica that holds the Lease. No data without leaderElection.",
                queries=[Query("max by (pod) (homeport_leader_election_master_status{@})", "{{pod}}")],
                lines="stepAfter",
                stacked=True,
            ),
            Panel(
                title="New leaders",
                text="Changes of leader that were seen.",
                queries=[Query("max(increase(homeport_leader_transitions_total{@}[$__rate_interval]))", "new leaders")],
                decimals=0,
            ),
            Panel(
                title="Requests sent on to the leader",
                text="By what came of it; unreachable and unanswered leave a pod waiting.",
                queries=[Query(_rate("homeport_forwarded_requests_total", "outcome"), "{{outcome}}")],
                unit="reqps",
                stacked=True,
            ),
            Panel(
                title="Ready",
                text="1 while a replica says that it can decide, or knows who does.",
                queries=[Query("max by (pod) (homeport_ready{@})", "{{pod}}")],
                lines="stepAfter",
            ),
            Panel(
                title="Certificates end in",
                text="Time left of each certificate. No data without TLS.",
                queries=[
                    Query(
                        "min by (certificate) (homeport_certificate_expiration_timestamp_seconds{@} - time())",
                        "{{certificate}}",
                    )
                ],
                unit="s",
                least=None,
            ),
            Panel(
                title="Permissions missing",
                text="Of those that the configuration needs. Which they are is at /readyz?verbose.",
                queries=[Query("max by (pod) (homeport_permissions_missing{@})", "{{pod}}")],
                lines="stepAfter",
            ),
        ),
    ),
    (
        "Snapshot of the cluster",
        (
            Panel(
                title="Age of feeds",
                text="Time since each watch was last heard of. Beyond maxFeedAge nothing is decided.",
                queries=[Query("max by (kind) (homeport_feed_age_seconds{@})", "{{kind}}")],
                unit="s",
            ),
            Panel(
                title="Watch events",
                text="Events applied, by kind.",
                queries=[Query(_rate("homeport_feed_events_total", "kind"), "{{kind}}")],
                unit="ops",
                stacked=True,
            ),
            Panel(
                title="Objects",
                text="Objects in the snapshot, by kind.",
                queries=[Query("max by (kind) (homeport_objects{@})", "{{kind}}")],
                lines="stepAfter",
            ),
            Panel(
                title="Objects left out",
                text="Objects that exist and cannot be read.",
                queries=[Query("max by (kind) (homeport_feed_left_out{@})", "{{kind}}")],
                lines="stepAfter",
            ),
            Panel(
                title="Lists taken anew",
                text="Lists after the first, by kind. Many of them mean that watches break.",
                queries=[
                    Query("sum by (kind) (increase(homeport_feed_relists_total{@}[$__rate_interval]))", "{{kind}}")
                ],
            ),
            Panel(
                title="Kinds without a list",
                text="Kinds whose first list is not applied yet, by replica. Nothing is decided before it is.",
                queries=[
                    Query(
                        "count by (pod) (homeport_feed_synced{@} == 0) or 0 * max by (pod) (homeport_ready{@})",
                        "{{pod}}",
                    )
                ],
                lines="stepAfter",
            ),
        ),
    ),
    (
        "Trouble",
        (
            Panel(
                title="Requests without a decision",
                text="By why there was none. The pods concerned wait and are tried again.",
                queries=[
                    Query(
                        _rate("homeport_requests_total", "verb, outcome", f', outcome=~"{_ERRORS}"'),
                        "{{verb}} {{outcome}}",
                    )
                ],
                unit="reqps",
                width=6,
            ),
            Panel(
                title="Turned away",
                text="Connections and requests that a listener did not let through, by cause.",
                queries=[Query(_rate("homeport_turned_away_total", "listener, cause"), "{{listener}} {{cause}}")],
                unit="ops",
                width=6,
            ),
            Panel(
                title="Pods nobody checks",
                text="Requests about pods of no profile here: they pass, and are bound, unchecked.",
                queries=[Query(_rate("homeport_unserved_requests_total", "scheduler_name"), "{{scheduler_name}}")],
                unit="reqps",
                width=6,
            ),
            Panel(
                title="Events for people",
                text="Events raised on objects, by what became of them. over_budget and overflow were dropped here, "
                "refused and failed at the API server.",
                queries=[Query(_rate("homeport_events_total", "result"), "{{result}}")],
                unit="ops",
                width=6,
            ),
        ),
    ),
    (
        "Process",
        (
            Panel(
                title="CPU",
                text="Of one core: a process decides on one thread.",
                queries=[
                    Query(
                        f"rate(process_cpu_seconds_total{{@}}[$__rate_interval]) {_OURS}",
                        "{{pod}}",
                    )
                ],
                unit="percentunit",
                width=6,
            ),
            Panel(
                title="Memory",
                text="Resident.",
                queries=[
                    Query(
                        f"process_resident_memory_bytes{{@}} {_OURS}",
                        "{{pod}}",
                    )
                ],
                unit="bytes",
                width=6,
            ),
            Panel(
                title="Event loop late by",
                text="99th percentile of how late the loop comes to what is due. It holds up every decision.",
                queries=[Query(_quantile("0.99", "homeport_event_loop_lag_seconds", "pod"), "{{pod}}")],
                unit="s",
                width=6,
            ),
            Panel(
                title="Open files",
                text="Connections among them, and how many there may be.",
                queries=[
                    Query(f"process_open_fds{{@}} {_OURS}", "{{pod}}"),
                    Query(f"process_max_fds{{@}} {_OURS}", "{{pod}}, most"),
                ],
                width=6,
            ),
            Panel(
                title="Replicas",
                text="Each replica with its version and the Python it runs on.",
                queries=[Query("homeport_build_info{@}")],
                kind="table",
                width=18,
                height=6,
            ),
            Panel(
                title="Log lines dropped",
                text="Log lines that standard error did not take: a full disk, or a pipe that is not read.",
                queries=[Query(_rate("homeport_log_lines_dropped_total", "pod"), "{{pod}}")],
                width=6,
                height=6,
            ),
        ),
    ),
)


def dashboard() -> Json:
    """The dashboard as Grafana takes it."""
    return {
        "uid": "homeport",
        "title": "Homeport",
        "description": "What Homeport decides, how fast, and what keeps it from it.",
        "tags": ["homeport", "kubernetes", "scheduler"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": [_new_leaders()]},
        "links": [],
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _new_leaders() -> Json:
    return {
        "name": "New leader",
        "datasource": _SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "orange",
        "expr": f"changes(homeport_leader_election_master_status{{{_CHOSEN}}}[1m]) > 0",
        "titleFormat": "{{pod}} begins or ceases to lead",
        "step": "60s",
    }


def _variables() -> Iterable[Json]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "regex": "",
        "includeAll": False,
        "multi": False,
    }
    for name, label, asked in (
        ("namespace", "Namespace", "homeport_build_info"),
        ("pod", "Pod", 'homeport_build_info{namespace=~"$namespace"}'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _SOURCE,
            "definition": f"label_values({asked}, {name})",
            "query": {"query": f"label_values({asked}, {name})", "refId": "variable"},
            "refresh": 2,
            "sort": 1,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "hide": 0,
        }


def _panels() -> Iterable[Json]:
    """Rows and their panels, from the left to the right and from the top down."""
    number, y = 1, 0
    for title, panels in ROWS:
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            "panels": [],
        }
        number, y, x, tallest = number + 1, y + 1, 0, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            yield panel.written(number, x, y)
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        y += tallest


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
