"""What contradicts itself, is of the wrong type or asks for what a cluster has not is refused, and why is said."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.config.flags import flags_of
from app.config.mistakes import field_names
from app.config.settings import Settings
from tests.chart import settings_schema
from tests.chart.definitions import api_versions
from tests.chart.rendering import CHART, CLUSTER, HELMS, RefusedError, containers, of_kind, pod_of, rendered, run_helm
from tests.chart.settings_schema import OWN

Values = dict[str, Any]

SERVICE: Final[Values] = {"mode": "service"}
CLAIM: Final = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "resource": "persistentvolumeclaims"}
TWICE: Final = {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}

CONTRADICTIONS: Final[dict[str, tuple[Values, str]]] = {
    "scheduled by itself": (
        {"podSchedulerName": "homeport"},
        'podSchedulerName "homeport" is a name that Homeport serves: with all replicas gone nobody could start',
    ),
    "scheduled by itself under a further name": (
        {"extraSchedulerNames": ["default-scheduler"]},
        'podSchedulerName "default-scheduler" is a name that Homeport serves',
    ),
    "a name twice": (
        {"extraSchedulerNames": ["homeport"]},
        "extraSchedulerNames repeats a name that is served already",
    ),
    "two schedulers of one name": (
        {"schedulerName": "default-scheduler", "podSchedulerName": "other"},
        "mode scheduler cannot serve default-scheduler: the cluster's own kube-scheduler does",
    ),
    "nothing to decide": (
        {"plugins": {"podTopologySpread": {"enabled": False}, "stickyNode": {"enabled": False}}},
        "plugins: podTopologySpread and stickyNode are both off",
    ),
    "both spread": (
        {"kubeScheduler": {"plugins": {"score": {"enabled": [{"name": "PodTopologySpread"}]}}}},
        "kubeScheduler.plugins.score enables PodTopologySpread, which Homeport takes over",
    ),
    "nobody spreads": (
        {
            "plugins": {"podTopologySpread": {"enabled": False}},
            "kubeScheduler": {"plugins": {"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}}},
        },
        "kubeScheduler.plugins.multiPoint disables PodTopologySpread: that follows from plugins.podTopologySpread",
    ),
    "a weight of less than one": (
        {**SERVICE, "extender": {"maxPriority": 100}},
        "extender.weight 2 is not possible with extender.maxPriority 100 in mode service: weight \u00d7 10 /",
    ),
    "a weight that is not whole": (
        {"extender": {"weight": 3}},
        "extender.weight 3 is not possible with extender.maxPriority 100 in mode scheduler: weight \u00d7 50",
    ),
    "fewer names in full answers": (
        {"extender": {"lean": False, "atMost": 100}},
        "extender.atMost needs extender.lean",
    ),
    "one node in full answers": (
        {"extender": {"lean": False, "pick": True}},
        "extender.pick needs extender.lean",
    ),
    "one node, and a hundred": (
        {"extender": {"pick": True, "atMost": 100}},
        "extender.pick returns one node, and extender.atMost is 100",
    ),
    "one node without the scores of spread": (
        {"extender": {"pick": True}, "plugins": {"podTopologySpread": {"enabled": False}}},
        "extender.pick needs plugins.podTopologySpread.enabled",
    ),
    "one node and evictions": (
        {"extender": {"pick": True}, "plugins": {"podTopologySpread": {"preemption": "Own"}}},
        "extender.pick and plugins.podTopologySpread.preemption Own exclude each other",
    ),
    "a port that is taken": (
        {"extender": {"port": 10259}},
        "extender.port 10259 is taken in the pod",
    ),
    "a variable of that kind": (
        {"extraEnv": [{"name": "HOMEPORT_HTTP_TIMEOUT", "value": "9s"}]},
        "extraEnv: HOMEPORT_HTTP_TIMEOUT would come before the configuration file: set it in config.",
    ),
    "another configuration of kube-scheduler": (
        {"kubeScheduler": {"extraArgs": ["--config=/x"]}},
        "kubeScheduler.extraArgs: --config is not to be given",
    ),
    "leaders that overlap": (
        {"leaderElection": {"leaseDuration": "10s"}},
        "leaderElection: leaseDuration 10s is not longer than renewDeadline 10s",
    ),
    "a leader that cannot renew in time": (
        {"leaderElection": {"leaseDuration": "1m", "renewDeadline": "2.4s"}},
        "leaderElection: renewDeadline 2.4s is not longer than 1.2 times retryPeriod 2s",
    ),
    "too few renewals": (
        {"leaderElection": {"retryPeriod": "5001ms"}},
        "leaderElection: retryPeriod 5001ms is longer than a third of leaseDuration 15s",
    ),
    "a lease that outlasts what others wait for": (
        {"leaderElection": {"leaseDuration": "301s"}},
        "leaderElection: leaseDuration 301s is longer than 5m, the longest that other replicas wait.",
    ),
    "a kube-scheduler that cannot renew in time": (
        {"kubeScheduler": {"leaderElection": {"retryPeriod": "9s"}}},
        "kubeScheduler.leaderElection: renewDeadline 10s is not longer than 1.2 times retryPeriod 9s",
    ),
    "renewed without end": (
        {"certificates": {"source": "certManager", "certManager": {"renewBefore": "90h", "duration": "89.5h"}}},
        "certificates.certManager: renewBefore 90h is not shorter than duration 89.5h",
    ),
    "a quota of no class": (
        {"priorityClassName": "", "priorityQuota": {"create": True}},
        "priorityQuota.create is true, and priorityClassName is empty",
    ),
    "a secret without a name": (
        {"certificates": {"source": "existingSecret"}},
        "certificates.source is existingSecret: name it in certificates.existingSecret.name.",
    ),
    "a secret that nobody uses": (
        {"certificates": {"existingSecret": {"name": "pair"}}},
        "certificates.existingSecret is given, and certificates.source is selfSigned",
    ),
    "a caller that passes for a replica": (
        {"certificates": {"clientName": "homeport.scheduling.svc"}},
        'certificates.clientName "homeport.scheduling.svc" is one of Homeport\'s own DNS names',
    ),
    "the account of everybody": (
        {"serviceAccount": {"create": False}},
        "serviceAccount.create is false: name the service account in serviceAccount.name.",
    ),
    "no pod can be replaced": (
        {"updateStrategy": {"rollingUpdate": {"maxSurge": "0%"}}},
        "updateStrategy.rollingUpdate: maxSurge and maxUnavailable are both 0",
    ),
    "nobody may call": (
        {**SERVICE, "networkPolicy": {"enabled": True}},
        "networkPolicy.schedulers is empty: say who may call the verbs of mode service",
    ),
    "pages for everybody": (
        {"operatorService": {"enabled": True}},
        "operatorService.apiServerCIDRs is empty: set the addresses from which the API server connects to pods.",
    ),
    "pages for every address": (
        {"operatorService": {"enabled": True, "apiServerCIDRs": ["192.0.2.10/32", "0.0.0.0/0"]}},
        "operatorService.apiServerCIDRs: 0.0.0.0/0 contains every address.",
    ),
    "pages that are open by themselves": (
        {"operatorService": {"enabled": True, "apiServerCIDRs": ["::1/128"]}, "config": {"openReads": True}},
        "config.openReads is not to be set: it follows from other values of this chart.",
    ),
    "metrics that nobody gets to": (
        {
            "operatorService": {"enabled": True, "apiServerCIDRs": ["192.0.2.10/32"]},
            "monitoring": {"podMonitor": {"enabled": True, "renderMode": "alwaysRender"}},
        },
        "networkPolicy.scrapers is empty, and operatorService.enabled closes the port of metrics",
    ),
    "scraped twice": ({"monitoring": TWICE}, "monitoring: podMonitor and serviceMonitor are both on"),
}

OWN_FLAGS: Final = ["config", *(it.name for it in flags_of(Settings) if it.place[0] in OWN)]
OTHER_FLAGS: Final = [it.name for it in flags_of(Settings) if it.place[0] not in OWN]
SCHEDULERS_FLAGS: Final = (
    *("-v=4", "-v4", "-v", "--v=4", "--leader-elect-lease-duration=1s", "--leader_elect=false", "-config=/x"),
    "--leader-elect-resource-name=kube-scheduler",
)

MISFITS: Final[dict[str, tuple[Values, str]]] = {
    "an unknown key": ({"replicas": 3}, "additional properties 'replicas' not allowed"),
    "an unknown setting": (
        {"config": {"logLevl": "info"}},
        "at '/config': additional properties 'logLevl' not allowed",
    ),
    "a setting that is none": ({"config": {"logLevel": "loud"}}, "at '/config/logLevel': value must be one of 'debug'"),
    "a mode that there is not": ({"mode": "sidecar"}, "at '/mode': value must be one of 'scheduler', 'service'"),
    "a duration without a unit": ({"extender": {"httpTimeout": "5"}}, "at '/extender/httpTimeout': '5' does not match"),
    "too little time to end": (
        {"terminationGracePeriodSeconds": 10},
        "at '/terminationGracePeriodSeconds': minimum: got 10, want 30",
    ),
    "an owner without its plural": (
        {"plugins": {"stickyNode": {"owners": [{"apiVersion": "example.com/v1", "kind": "Database"}]}}},
        "at '/plugins/stickyNode/owners/0': missing property 'resource'",
    ),
    "a claim that nobody can select": (
        {"plugins": {"stickyNode": {"owners": [{**CLAIM, "selector": {"labels": {"a": "b"}}}]}}},
        "at '/plugins/stickyNode/owners/0/selector': additional properties 'labels' not allowed",
    ),
    "no owner": (
        {"plugins": {"stickyNode": {"owners": []}}},
        "at '/plugins/stickyNode/owners': minItems: got 0, want 1",
    ),
    "a policy that there is not": (
        {"plugins": {"stickyNode": {"args": {"policy": "firm"}}}},
        "at '/plugins/stickyNode/args/policy': value must be one of 'hard', 'soft', 'grace', 'off', false",
    ),
    "two marks in one": (
        {"plugins": {"stickyNode": {"args": {"maintenance": [{"taint": "a", "label": "b"}]}}}},
        "at '/plugins/stickyNode/args/maintenance/0': 'oneOf' failed",
    ),
    "a digest that is none": ({"image": {"digest": "latest"}}, "at '/image/digest': 'latest' does not match pattern"),
    "everybody's schedulerName": ({"schedulerName": "*"}, "at '/schedulerName': '*' does not match pattern"),
    "a label of the chart's own": (
        {"commonLabels": {"app.kubernetes.io/component": "other"}},
        "at '/commonLabels/app.kubernetes.io~1component': false schema",
    ),
    "an address that is no range": (
        {"operatorService": {"apiServerCIDRs": ["192.0.2.10"]}},
        "at '/operatorService/apiServerCIDRs/0': '192.0.2.10' does not match pattern",
    ),
    "no mode": ({"mode": None}, "missing property 'mode'"),
}

MONITORS: Final = ("podMonitor", "serviceMonitor", "prometheusRule")
KINDS: Final = {"podMonitor": "PodMonitor", "serviceMonitor": "ServiceMonitor", "prometheusRule": "PrometheusRule"}


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(("values", "sentence"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_values_that_contradict_each_other(helm: str, values: Values, sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        rendered(values, helm=helm)

    assert sentence in str(refused.value)


@pytest.mark.parametrize("mode", ["scheduler", "service"])
@pytest.mark.parametrize("setting", OWN)
def test_settings_that_follow_from_values(mode: str, setting: str) -> None:
    with pytest.raises(RefusedError, match=rf"config\.{setting} is not to be set"):
        rendered({"mode": mode, "config": {setting: "x"}})


@pytest.mark.parametrize("mode", ["scheduler", "service"])
@pytest.mark.parametrize("flag", OWN_FLAGS)
def test_flags_of_settings_that_follow_from_values(mode: str, flag: str) -> None:
    """Also with one dash, and with its value behind it."""
    for given in ([f"--{flag}=x"], [f"-{flag}=x"], [f"--{flag}", "x"]):
        with pytest.raises(RefusedError, match=f"extraArgs: --{flag} is not to be given"):
            rendered({"mode": mode, "extraArgs": given})


@pytest.mark.parametrize("flag", ["conf", "leader-elect-res", "self-s", "operator-p"])
def test_the_beginning_of_such_a_flag_is_the_flag(flag: str) -> None:
    with pytest.raises(RefusedError, match=f"extraArgs: --{flag} is not to be given"):
        rendered({"extraArgs": [f"--{flag}=x"]})


@pytest.mark.parametrize("mode", ["scheduler", "service"])
def test_all_other_flags_are_let_through(mode: str) -> None:
    given = [f"--{flag}=x" for flag in OTHER_FLAGS]

    assert len(given) > 10
    assert given == containers(pod_of(rendered({"mode": mode, "extraArgs": given})))["homeport"]["args"][2:]


@pytest.mark.parametrize("argument", SCHEDULERS_FLAGS)
def test_flags_of_kube_scheduler_that_follow_from_values(argument: str) -> None:
    with pytest.raises(RefusedError) as refused:
        rendered({"kubeScheduler": {"extraArgs": [argument]}})

    assert f"kubeScheduler.extraArgs: {argument.partition('=')[0]} is not to be given" in str(refused.value)


def test_other_flags_of_kube_scheduler_are_let_through() -> None:
    given = ["--vmodule=schedule_one=5", "--profiling=false"]

    found = containers(pod_of(rendered({"kubeScheduler": {"extraArgs": given}})))
    assert given == found["kube-scheduler"]["args"][-2:]


@pytest.mark.parametrize("helm", HELMS)
def test_a_service_that_begins_with_a_digit(helm: str) -> None:
    """Before 1.36 the API server refuses it, after the rest was made. Nothing else has to begin with a letter."""
    sentence = '"1st-homeport" is no name of a Service, which begins with a letter'
    operator = {"operatorService": {"enabled": True, "apiServerCIDRs": ["192.0.2.10/32"]}}
    monitor = {"monitoring": {"serviceMonitor": {"enabled": True, "renderMode": "alwaysRender"}}}
    for values in (SERVICE, monitor, operator):
        with pytest.raises(RefusedError) as refused:
            rendered(values, helm=helm, release="1st")
        assert sentence in str(refused.value)
        assert rendered({**values, "fullnameOverride": "first"}, helm=helm, release="1st")
    assert rendered({}, helm=helm, release="1st")


def test_the_settings_that_follow_from_values_are_homeports_own() -> None:
    assert {*OWN} <= field_names(Settings).keys()


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(("values", "sentence"), MISFITS.values(), ids=MISFITS)
def test_values_that_do_not_fit_the_schema(helm: str, values: Values, sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        rendered(values, helm=helm)

    assert sentence in str(refused.value)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("cluster", ["v1.30.14", "v1.29.0-gke.1381000"])
def test_a_cluster_that_is_too_old(helm: str, cluster: str) -> None:
    with pytest.raises(RefusedError, match=r"chart requires kubeVersion: >=1\.31\.0-0 which is incompatible"):
        rendered({}, helm=helm, cluster=cluster)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("cluster", ["v1.31.0", "v1.33.5-eks-3cfe0ce", "v1.34.1-gke.2037001", "v1.35.0+k3s1"])
def test_versions_of_vendors_are_let_in(helm: str, cluster: str) -> None:
    assert rendered({}, helm=helm, cluster=cluster)


@pytest.mark.parametrize("helm", HELMS)
def test_a_version_that_is_no_tag_of_an_image(helm: str) -> None:
    """As Argo CD tells it."""
    with pytest.raises(RefusedError, match=r"\"v1\.36\" is none: set kubeScheduler\.image\.tag"):
        rendered({}, helm=helm, cluster="1.36")
    assert rendered({"kubeScheduler": {"image": {"tag": "v1.36.3"}}}, helm=helm, cluster="1.36")


@pytest.mark.parametrize("helm", HELMS)
def test_certificates_of_cert_manager_need_cert_manager(helm: str) -> None:
    asked = {"certificates": {"source": "certManager"}}
    with pytest.raises(RefusedError) as refused:
        rendered(asked, helm=helm)

    assert (
        "certificates.certManager needs cert-manager.io/v1/Certificate, which this cluster does not serve. Install its "
        "definition first, or set certificates.certManager.renderMode to alwaysRender"
    ) in str(refused.value)
    assert of_kind(rendered(asked, helm=helm, api_versions=api_versions()), "Certificate")


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("name", MONITORS)
def test_a_kind_that_the_cluster_does_not_serve(helm: str, name: str) -> None:
    """It fails, is left out or is rendered all the same: as its mode says; and where it is served it is rendered."""

    def monitor(mode: str, *versions: str) -> int:
        asked = {"monitoring": {name: {"enabled": True, "renderMode": mode}}}
        return len(of_kind(rendered(asked, helm=helm, api_versions=versions), KINDS[name]))

    with pytest.raises(RefusedError) as refused:
        monitor("failIfMissing")

    assert f"monitoring.{name} needs monitoring.coreos.com/v1/{KINDS[name]}" in str(refused.value)
    assert (0, 1) == (monitor("skipIfMissing"), monitor("alwaysRender"))
    served = api_versions()
    assert (1, 1) == (monitor("failIfMissing", *served), monitor("skipIfMissing", *served))


def test_the_schema_of_config_is_made_from_the_settings() -> None:
    """``make chart-docs`` makes it."""
    text = settings_schema.FILE.read_text(encoding="utf-8")

    assert settings_schema.written(text) == text


@pytest.mark.parametrize("helm", HELMS)
def test_an_image_that_no_registry_has(helm: str) -> None:
    arguments = ("template", "homeport", str(CHART), f"--kube-version={CLUSTER}")
    with pytest.raises(
        RefusedError, match=r"the image is localhost/homeport:\S+, which no registry has: .* image\.registry"
    ):
        run_helm(helm, *arguments)

    for given in ("image.registry=registry.example.com", "global.imageRegistry=example.com", "image.allowLocal=true"):
        assert run_helm(helm, *arguments, f"--set={given}")
    assert run_helm(helm, *arguments, "--is-upgrade"), "a release that has it goes on"
