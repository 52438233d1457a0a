"""For each alert, what must fire it and what must not: series as promtool writes them, a value a minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

A: Final = 'namespace="homeport", pod="homeport-a"'
B: Final = 'namespace="homeport", pod="homeport-b"'
NAMESPACE: Final = {"namespace": "homeport"}
POD: Final = {**NAMESPACE, "pod": "homeport-a"}


class Story(Struct, frozen=True):
    """At ``minute`` the alert fires with each of the label sets ``fires``, and with no other."""

    alert: str
    about: str
    series: Mapping[str, str]
    minute: int
    fires: Sequence[Mapping[str, str]] = ()

    def written(self, severity: str) -> dict[str, Any]:
        """The test as promtool takes it."""
        expected = [
            {"labels": f"ALERTS{{{_matchers({**self._own(severity), **labels})}}}", "value": 1} for labels in self.fires
        ]
        asked = f'ALERTS{{alertname="{self.alert}", alertstate="firing"}}'
        return {
            "name": f"{self.alert}: {self.about}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in self.series.items()],
            "promql_expr_test": [{"expr": asked, "eval_time": f"{self.minute}m", "exp_samples": expected}],
        }

    def _own(self, severity: str) -> dict[str, str]:
        return {"alertname": self.alert, "alertstate": "firing", "severity": severity}


def _matchers(labels: Mapping[str, str]) -> str:
    return ", ".join(f'{name}="{value}"' for name, value in labels.items())


def _requests(verb: str, outcome: str) -> str:
    return f'homeport_requests_total{{{A}, verb="{verb}", outcome="{outcome}"}}'


def _buckets(metric: str, labels: str, **counts: int) -> dict[str, str]:
    """Cumulative buckets that grow by so many each minute; ``_0_5`` is ``le="0.5"``."""
    return {
        f'{metric}_bucket{{{labels}, le="{name[1:].replace("_", ".").replace("inf", "+Inf")}"}}': f"0+{count}x120"
        for name, count in counts.items()
    }


_READY: Final = (f"homeport_ready{{{A}}}", f"homeport_ready{{{B}}}")
_LEADS: Final = tuple(f'homeport_leader_election_master_status{{{it}, name="homeport"}}' for it in (A, B))
_BUILT: Final = f'homeport_build_info{{{A}, version="1"}}'
_BUILT_B: Final = f'homeport_build_info{{{B}, version="1"}}'
_BUILT_C: Final = 'homeport_build_info{namespace="homeport", pod="homeport-c", version="2"}'
_LEASE: Final = {**NAMESPACE, "name": "homeport"}
_SCHEDULER: Final = f'leader_election_master_status{{{A}, container="kube-scheduler", name="homeport-scheduler"}}'
_CONTROL_PLANE: Final = (
    'leader_election_master_status{namespace="kube-system", pod="kube-scheduler-x", name="kube-scheduler"}'
)
_FORWARDED: Final = f'homeport_forwarded_requests_total{{{A}, verb="filter", outcome="%s"}}'
_ENDS: Final = f'homeport_certificate_expiration_timestamp_seconds{{{A}, certificate="%s"}}'
_FAULTS: Final = f'homeport_plugin_faults_total{{{A}, plugin="Quiet", extension_point="Filter"}}'
_TURNED: Final = f'homeport_listener_rejections_total{{{A}, listener="verbs", cause="handshake"}}'
_UNSERVED: Final = f'homeport_unserved_requests_total{{{A}, verb="filter", scheduler_name="other"}}'
_HOMES: Final = f'homeport_homes{{{A}, profile="*", state="%s"}}'
_SKEWED: Final = {"exported_namespace": "shop", "workload": "Deployment/web", "topology_key": "zone"}
_SKEW: Final = f"homeport_workload_skew{{{A}, {_matchers(_SKEWED)}}}"
_WAITS: Final = f'homeport_homes_longest_wait_seconds{{{A}, profile="*"}}'
_AGE: Final = f'homeport_feed_age_seconds{{{A}, kind="v1 Pod"}}'
_LEFT: Final = f'homeport_feed_unreadable_objects{{{A}, kind="v1 Node"}}'
_CHECKS: Final = f'homeport_snapshot_checks_total{{{A}, result="%s"}}'

STORIES: Final = (
    Story("HomeportAbsent", "nobody", {}, 15, [{}]),
    Story("HomeportAbsent", "nobody, not for long", {_BUILT: "1x10"}, 20),
    Story("HomeportAbsent", "one is there", {_BUILT: "1x30"}, 15),
    Story("HomeportReplicaMissing", "one of two", {_BUILT: "1x180", _BUILT_B: "1x120 stale _x60"}, 150, [NAMESPACE]),
    Story(
        "HomeportReplicaMissing",
        "it starts again and again",
        {_BUILT: "1x180", _BUILT_B: "1x120 stale _x4 1 stale _x4 1 stale _x4 1 stale _x4 1 stale _x40"},
        150,
        [NAMESPACE],
    ),
    Story(
        "HomeportReplicaMissing",
        "a rolling update",
        {_BUILT: "1x120 stale _x60", _BUILT_B: "1x180", _BUILT_C: "_x118 1x60"},
        140,
    ),
    Story("HomeportReplicaMissing", "it comes back", {_BUILT: "1x180", _BUILT_B: "1x120 stale _x9 1x50"}, 140),
    Story("HomeportNoneReady", "neither", {_READY[0]: "0x30", _READY[1]: "0x30"}, 10, [NAMESPACE]),
    Story("HomeportNoneReady", "one of two", {_READY[0]: "0x30", _READY[1]: "1x30"}, 20),
    Story("HomeportNoneReady", "a rolling update", {_READY[0]: "1x10 0x3 1x20", _READY[1]: "1x11 0x3 1x20"}, 14),
    Story("HomeportNotReady", "one of two", {_READY[0]: "0x30", _READY[1]: "1x30"}, 20, [POD]),
    Story("HomeportNotReady", "again and again, not for long", {_READY[0]: "0x9 1x1 0x9 1x1 0x9"}, 25),
    Story("HomeportNoLeader", "nobody leads", {_LEADS[0]: "1x5 0x30", _LEADS[1]: "0x40"}, 15, [_LEASE]),
    Story("HomeportNoLeader", "a change", {_LEADS[0]: "1x5 0x30", _LEADS[1]: "0x8 1x30"}, 15),
    Story("HomeportTwoLeaders", "both lead", {_LEADS[0]: "1x30", _LEADS[1]: "0x5 1x30"}, 10, [_LEASE]),
    Story("HomeportTwoLeaders", "for one scrape", {_LEADS[0]: "1x5 0x30", _LEADS[1]: "0x5 1x30"}, 10),
    Story(
        "HomeportTwoLeaders",
        "of two installations",
        {_LEADS[0]: "1x30", _LEADS[0].replace('namespace="homeport"', 'namespace="other"'): "1x30"},
        10,
    ),
    Story(
        "HomeportLeaderChangesOften",
        "each five minutes",
        {f"homeport_leader_transitions_total{{{A}}}": "0+0.2x120"},
        100,
        [NAMESPACE],
    ),
    Story("HomeportLeaderChangesOften", "once", {f"homeport_leader_transitions_total{{{A}}}": "0x30 1x90"}, 50),
    Story(
        "HomeportSchedulerNoLeader",
        "beside Homeport",
        {_SCHEDULER: "0x30", _BUILT: "1x30"},
        10,
        [{**NAMESPACE, "name": "homeport-scheduler"}],
    ),
    Story(
        "HomeportSchedulerNoLeader",
        "it leads beside a Homeport that is dead",
        {_SCHEDULER: "1x30", _SCHEDULER.replace(A, B): "0x30", _BUILT_B: "1x30"},
        10,
    ),
    Story(
        "HomeportSchedulerNoLeader",
        "static pods",
        {_CONTROL_PLANE: "0x30", _BUILT.replace('namespace="homeport"', 'namespace="kube-system"'): "1x30"},
        10,
        [{"namespace": "kube-system", "name": "kube-scheduler"}],
    ),
    Story(
        "HomeportSchedulerNoLeader",
        "a controller manager in its namespace",
        {
            _SCHEDULER: "1x30",
            _SCHEDULER.replace("homeport-scheduler", "kube-controller-manager"): "0x30",
            _BUILT: "1x30",
        },
        10,
    ),
    Story(
        "HomeportLeaderNotReached",
        "one in ten seconds",
        {_FORWARDED % "unreachable": "0+6x60", _FORWARDED % "answered": "0+60x60"},
        40,
        [{**POD, "outcome": "unreachable"}],
    ),
    Story("HomeportLeaderNotReached", "all are answered", {_FORWARDED % "answered": "0+60x60"}, 40),
    Story("HomeportPermissionsMissing", "two", {f"homeport_permissions_missing{{{A}}}": "2x40"}, 25, [NAMESPACE]),
    Story("HomeportPermissionsMissing", "granted meanwhile", {f"homeport_permissions_missing{{{A}}}": "2x10 0x40"}, 25),
    Story(
        "HomeportCertificateEnds",
        "a leaf in a day",
        {_ENDS % "serving": "100000x60"},
        40,
        [{**POD, "certificate": "serving"}],
    ),
    Story(
        "HomeportCertificateEnds",
        "an authority in 20 days",
        {_ENDS % "authority": "1728000x60"},
        40,
        [{**POD, "certificate": "authority"}],
    ),
    Story(
        "HomeportCertificateEnds",
        "a kubeconfig in 20 days, which nobody renews",
        {_ENDS % "kubeconfig": "1728000x60"},
        40,
        [{**POD, "certificate": "kubeconfig"}],
    ),
    Story(
        "HomeportCertificateEnds",
        "in good time",
        {
            **{_ENDS % it: "200000x60" for it in ("serving", "client")},
            **{_ENDS % it: "3456000x60" for it in ("authority", "kubeconfig")},
        },
        40,
    ),
    Story(
        "HomeportVerbErrors",
        "one in ten",
        {_requests("filter", "fault"): "0+10x60", _requests("filter", "feasible"): "0+90x60"},
        30,
        [{**NAMESPACE, "verb": "filter", "outcome": "fault"}],
    ),
    Story(
        "HomeportVerbErrors",
        "six in a hundred, all sent on by a follower first",
        {
            _requests("filter", "fault"): "0+6x60",
            _requests("filter", "feasible"): "0+94x60",
            _requests("filter", "forwarded").replace(A, B): "0+100x60",
        },
        30,
        [{**NAMESPACE, "verb": "filter", "outcome": "fault"}],
    ),
    Story(
        "HomeportVerbErrors",
        "one in a hundred",
        {_requests("filter", "fault"): "0+1x60", _requests("filter", "feasible"): "0+99x60"},
        30,
    ),
    Story(
        "HomeportVerbErrors",
        "refused is decided",
        {_requests("filter", "no_fit"): "0+90x60", _requests("filter", "feasible"): "0+10x60"},
        30,
    ),
    Story("HomeportVerbErrors", "nobody asks", {_requests("filter", "fault"): "5x60"}, 30),
    Story(
        "HomeportOverloaded",
        "one in twenty",
        {_requests("filter", "overloaded"): "0+5x60", _requests("filter", "feasible"): "0+95x60"},
        30,
        [{**NAMESPACE, "verb": "filter", "outcome": "overloaded"}],
    ),
    Story(
        "HomeportOverloaded",
        "three in a hundred, all sent on by a follower first",
        {
            _requests("filter", "overloaded"): "0+3x60",
            _requests("filter", "feasible"): "0+97x60",
            _requests("filter", "forwarded").replace(A, B): "0+100x60",
        },
        30,
        [{**NAMESPACE, "verb": "filter", "outcome": "overloaded"}],
    ),
    Story(
        "HomeportOverloaded",
        "one in a hundred",
        {_requests("filter", "overloaded"): "0+1x60", _requests("filter", "feasible"): "0+99x60"},
        30,
    ),
    Story(
        "HomeportSlow",
        "five in a hundred",
        _buckets("homeport_request_duration_seconds", f'{A}, verb="filter"', _0_25=90, _0_5=95, _1_0=100, _inf=100),
        30,
        [{**NAMESPACE, "verb": "filter"}],
    ),
    Story(
        "HomeportSlow",
        "quick, and a bind that waits for others",
        {
            **_buckets("homeport_request_duration_seconds", f'{A}, verb="filter"', _0_25=100, _1_0=100, _inf=100),
            **_buckets("homeport_request_duration_seconds", f'{A}, verb="bind"', _0_25=0, _1_0=10, _inf=100),
        },
        30,
    ),
    Story(
        "HomeportLoopHeldUp",
        "often",
        _buckets("homeport_event_loop_lag_seconds", A, _0_1=200, _0_5=240, _inf=240),
        30,
        [POD],
    ),
    Story(
        "HomeportLoopHeldUp", "hardly", _buckets("homeport_event_loop_lag_seconds", A, _0_1=239, _0_5=240, _inf=240), 30
    ),
    Story(
        "HomeportPluginFaults",
        "once",
        {_FAULTS: "0x20 1x40"},
        25,
        [{**NAMESPACE, "plugin": "Quiet", "extension_point": "Filter"}],
    ),
    Story("HomeportPluginFaults", "long ago", {_FAULTS: "0x20 1x40"}, 50),
    Story(
        "HomeportRejectsConnections",
        "one a second",
        {_TURNED: "0+60x60"},
        40,
        [{**POD, "listener": "verbs", "cause": "handshake"}],
    ),
    Story("HomeportRejectsConnections", "one a minute", {_TURNED: "0+1x60"}, 40),
    Story(
        "HomeportPodsUnchecked",
        "again and again",
        {_UNSERVED: "0+1x120"},
        100,
        [{**NAMESPACE, "scheduler_name": "other"}],
    ),
    Story("HomeportPodsUnchecked", "once", {_UNSERVED: "0x10 1x120"}, 100),
    Story(
        "HomeportSampleTooSmall",
        "one a minute",
        {f'homeport_nominations_total{{{A},result="hit"}}': "0+1x180"},
        130,
        [NAMESPACE],
    ),
    Story(
        "HomeportSampleTooSmall",
        "one in ten minutes",
        {f'homeport_nominations_total{{{A},result="hit"}}': "0+0.1x180"},
        130,
    ),
    Story(
        "HomeportBindConflicts",
        "one in five, also where they were sent on",
        {
            _requests("bind", "bind_conflict"): "0+20x60",
            _requests("bind", "bound"): "0+80x60",
            _requests("bind", "forwarded"): "0+900x60",
        },
        40,
        [NAMESPACE],
    ),
    Story(
        "HomeportBindConflicts",
        "one in twenty",
        {_requests("bind", "bind_conflict"): "0+5x60", _requests("bind", "bound"): "0+95x60"},
        40,
    ),
    Story(
        "HomeportBindFailures",
        "one in ten",
        {_requests("bind", "bind_failed"): "0+10x60", _requests("bind", "bound"): "0+90x60"},
        40,
        [NAMESPACE],
    ),
    Story(
        "HomeportBindFailures",
        "one in fifty",
        {_requests("bind", "bind_failed"): "0+2x60", _requests("bind", "bound"): "0+98x60"},
        40,
    ),
    Story("HomeportHomeAwaited", "for 45 minutes", {_WAITS: "0+60x60"}, 45, [NAMESPACE]),
    Story("HomeportHomeAwaited", "others each time", {_WAITS: "0+60x20 0+60x20 0+60x20"}, 45),
    Story("HomeportHomeNodeGone", "for an hour", {_HOMES % "node_gone": "2x90"}, 70, [NAMESPACE]),
    Story("HomeportHomeNodeGone", "it came back", {_HOMES % "node_gone": "2x30 0x60"}, 70),
    Story("HomeportHomesAway", "for hours", {_HOMES % "elsewhere": "1x400"}, 370, [NAMESPACE]),
    Story("HomeportHomesAway", "they are at home", {_HOMES % "elsewhere": "0x400", _HOMES % "at_home": "9x400"}, 370),
    Story("HomeportWorkloadSkewed", "for 20 minutes", {_SKEW: "3x30"}, 20, [_SKEWED]),
    Story("HomeportWorkloadSkewed", "mended meanwhile", {_SKEW: "3x10 _x30"}, 20),
    Story("HomeportHomesUnrecorded", "for 40 minutes", {_HOMES % "unrecorded": "1x60"}, 40, [NAMESPACE]),
    Story("HomeportHomesUnrecorded", "written meanwhile", {_HOMES % "unrecorded": "1x10 0x60"}, 40),
    Story("HomeportFeedTooOld", "nothing heard", {_AGE: "0+60x30"}, 10, [{**POD, "kind": "v1 Pod"}]),
    Story("HomeportFeedTooOld", "quiet, and asked after", {_AGE: "30x30"}, 10),
    Story("HomeportObjectsUnreadable", "one", {_LEFT: "1x30"}, 20, [{**NAMESPACE, "kind": "v1 Node"}]),
    Story("HomeportObjectsUnreadable", "mended", {_LEFT: "1x5 0x30"}, 20),
    Story("HomeportSnapshotWrong", "once", {_CHECKS % "different": "0x20 1x60"}, 25, [POD]),
    Story(
        "HomeportSnapshotWrong", "all is well", {_CHECKS % "different": "0x180", _CHECKS % "consistent": "0+1x180"}, 150
    ),
)
