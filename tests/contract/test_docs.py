"""The documents name everything there is and nothing else, and what they show works as printed."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import httpx
import pytest
import yaml
from prometheus_client import Metric
from pydantic.alias_generators import to_camel

import plugins
from app.commands.arguments import parser
from app.commands.question_flags import with_list
from app.config.loading import load_settings
from app.config.mistakes import field_names
from app.config.profile import Preset, Profile
from app.config.sections import LeaderElection, TracingConfiguration
from app.config.settings import Settings
from app.framework.spec import PluginSpec
from app.kube.durations import parse_duration
from app.main import HomeportService
from app.runtime.framework import _OPTIONAL_METHODS
from app.runtime.profiles import has_point
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, POINT_METHODS, Registry
from app.runtime.resolving import resolve
from app.telemetry.certificates import CertificateCollector
from app.telemetry.metrics import Metrics
from app.verbs.outcome import Outcome
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.contract.pages import blocks_of as blocks
from tests.contract.pages import rows as table
from tests.contract.pages import ticked
from tests.served import served

ROOT: Final = Path(__file__).parents[2]
CURL: Final = (ROOT / "examples" / "curl.txt").read_text(encoding="utf-8")
API_CURL: Final = re.findall(
    r"^\$ (curl .*)$", (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8"), re.MULTILINE
)
SAMPLE: Final = ROOT / "examples" / "sample-cluster.yaml"
CATALOGUE: Final = (ROOT / "plugins" / "README.md").read_text(encoding="utf-8")
PLUGIN_PAGES: Final = ROOT / "docs" / "plugins" / "catalogue"
DOCUMENTS: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "plugins").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
ADRS: Final = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
ADR_INDEX: Final = ROOT / "docs" / "adr" / "README.md"
NOT_BY_DEFAULT: Final = {
    spec.name: KUBE_SCHEDULER_DEFAULTS.get(spec.name, 0) for spec in SHIPPED if spec.name not in DEFAULT_WEIGHTS
}
NODES: Final = [f"node-{zone}{number}" for zone in "abc" for number in "1234"]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


class TestSettings:
    ROWS = table(page("configuration.md"), "setting")

    def test_every_setting_is_in_the_table_in_order(self) -> None:
        assert list(field_names(Settings)) == [ticked(name)[0] for name, *_ in self.ROWS]

    def test_the_defaults_are_right(self) -> None:
        shown = {ticked(name)[0]: ticked(default)[0] if ticked(default) else None for name, default, _ in self.ROWS}
        del shown["profiles"], shown["leaderElection"], shown["tracing"]

        defaults = {
            written: field.default or None if isinstance(field.default, str | tuple) else field.default
            for written, name in field_names(Settings).items()
            for field in (Settings.model_fields[name],)
            if name not in ("profiles", "leader_election", "tracing")
        }
        assert defaults == {name: _value(text, defaults[name]) for name, text in shown.items()}

    def test_every_word_of_leader_election_is_there_with_its_default(self) -> None:
        shown = {
            ticked(name)[0]: next(iter(ticked(default)), None)
            for name, default, _ in table(page("configuration.md"), "leaderElection")
        }
        defaults = {to_camel(name): field.default for name, field in LeaderElection.model_fields.items()}

        assert defaults == {
            name: text == "true" if isinstance(defaults[name], bool) else _value(text, defaults[name])
            for name, text in shown.items()
        }

    def test_every_word_of_tracing_is_there_with_its_default(self) -> None:
        rows = table(page("configuration.md"), "tracing")
        defaults = {to_camel(name): field.default for name, field in TracingConfiguration.model_fields.items()}

        assert defaults == {ticked(name)[0]: _value(next(iter(ticked(default)), None), 0) for name, default, _ in rows}

    def test_every_word_of_a_profile_is_in_its_section(self) -> None:
        text = page("configuration.md").partition("\n## Profiles\n")[2]

        assert [] == [word for name in Profile.model_fields if f"`{(word := to_camel(name))}`" not in text]

    def test_every_preset_is_there_and_delegated_is_told_by_its_plugins(self) -> None:
        shown = {ticked(name)[0]: what for name, what, _ in table(page("configuration.md"), "preset")}

        assert list(get_args(Preset)) == list(shown)
        assert ", ".join(DEFAULT_WEIGHTS) in shown["delegated"]

    def test_the_profiles_shown_are_good_ones(self) -> None:
        shown = [yaml.safe_load(it) for it in blocks(ROOT / "docs" / "configuration.md", "yaml") if "profiles:" in it]

        assert ["default-scheduler", "batch", "*", "*"] == [
            Profile.model_validate(profile).scheduler_name for it in shown for profile in it["profiles"]
        ]

    def test_the_file_shown_is_a_good_one(self, tmp_path: Path) -> None:
        block = blocks(ROOT / "docs" / "configuration.md", "yaml")[0]
        (tmp_path / "homeport.yaml").write_text(block)

        found = load_settings({}, config=str(tmp_path / "homeport.yaml"))

        assert (5.0, 20, ["default-scheduler"]) == (
            found.http_timeout,
            found.max_priority,
            [profile.scheduler_name for profile in found.profiles],
        )


def _value(text: str | None, default: object) -> object:
    """What the table shows, in the type of the default."""
    if text is None:
        return None
    if isinstance(default, bool):
        return {"true": True, "false": False}[text]
    if isinstance(default, float):
        return parse_duration(text)
    return int(text) if isinstance(default, int) else text


class TestMetrics:
    """The table against a service as it is: what has no series yet is known by the metric itself."""

    ROWS = table(page("metrics.md"), "metric")
    NO_LABELS = ("le", "quantile")

    @staticmethod
    def families() -> Iterator[Metric]:
        service = HomeportService(Settings(cluster=str(SAMPLE)), SHIPPED, DEFAULT_WEIGHTS, version="1.2.3")
        for _ in service.counting():
            pass
        yield from service.metrics.registry.collect()
        yield from CertificateCollector(lambda: {"serving": 0.0}).collect()

    def test_every_metric_is_in_the_table_with_its_type(self) -> None:
        exposed = [(it.name + ("_total" if it.type == "counter" else ""), it.type) for it in self.families()]

        assert sorted(exposed) == sorted((ticked(name)[0], kind) for name, kind, *_ in self.ROWS)

    def test_the_labels_are_right(self) -> None:
        declared = {it._name: set(it._labelnames) for it in vars(Metrics()).values() if hasattr(it, "_labelnames")}
        seen = {it.name: {label for sample in it.samples for label in sample.labels} for it in self.families()}
        labels = {name: (found or declared.get(name, set())) - {*self.NO_LABELS} for name, found in seen.items()}
        shown = {ticked(name)[0].removesuffix("_total"): set(ticked(found)) for name, _, found, _ in self.ROWS}

        empty = {"homeport_topology_skew", "homeport_unschedulable_pods", "homeport_workload_skew"}
        assert {name: found for name, found in shown.items() if name not in empty} == {
            name: found for name, found in labels.items() if name not in empty
        }

    def test_all_that_plugins_are_timed_at_beside_the_points_is_named(self) -> None:
        (told,) = re.findall(r"Besides the extension points(.+?)\.", page("metrics.md"), re.DOTALL)

        assert [*(timed_as for *_, timed_as in _OPTIONAL_METHODS), "Changed", "Explain", "Homes"] == ticked(told)


def test_every_outcome_is_in_the_table() -> None:
    rows = table(page("wire.md"), "outcome")

    assert sorted(get_args(Outcome)) == sorted(word for row in rows for word in ticked(row[0]))


class TestCatalogue:
    @pytest.mark.parametrize(
        ("head", "weights"),
        [
            pytest.param("plugin", DEFAULT_WEIGHTS, id="enabled by default"),
            pytest.param("plugin that is off by default", NOT_BY_DEFAULT, id="only if named"),
        ],
    )
    def test_every_plugin_is_in_its_table_with_its_points_and_weight(
        self, head: str, weights: Mapping[str, int]
    ) -> None:
        assert [
            (
                spec.name,
                [point for point in POINT_METHODS if has_point(spec, point)],
                weights[spec.name] if has_point(spec, "score") else 0,
            )
            for spec in SHIPPED
            if spec.name in weights
        ] == [
            (re.findall(r"\[(\w+)\]", name)[0], points.split(", "), int(weight or 0))
            for name, points, weight in table(CATALOGUE, head)
        ]

    def test_the_plugins_that_must_be_named_can_be(self) -> None:
        shown = Profile.model_validate(yaml.safe_load(blocks(ROOT / "plugins" / "README.md", "yaml")[0]))
        (found,) = resolve([shown], Registry(SHIPPED, DEFAULT_WEIGHTS))

        assert [spec.name for spec in SHIPPED] == list(found.specs)
        assert () == found.notices

    def test_every_plugin_has_a_page_that_the_index_links(self) -> None:
        links = r"^\| \[(\w+)\]\(\.\./docs/plugins/catalogue/([a-z-]+\.md)\) \|"
        linked = dict(re.findall(links, CATALOGUE, re.MULTILINE))

        assert {spec.name: plugin_page(spec.name).name for spec in SHIPPED} == linked
        assert sorted(linked.values()) == sorted(it.name for it in PLUGIN_PAGES.iterdir())
        assert [] == [name for name in linked if not text_of(name).startswith(f"# {name}\n")]

    @pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.name) for spec in SHIPPED])
    def test_every_argument_of_a_plugin_is_on_its_page(self, spec: PluginSpec[Any]) -> None:
        arguments = [
            field.alias or name for name, field in spec.args.model_fields.items() if name not in ("apiVersion", "kind")
        ]

        text = text_of(spec.name)
        assert f"`{spec.args.__name__}`" in text
        assert [] == [name for name in arguments if f"`{name}`" not in text]

    def test_every_reason_is_on_the_page_of_its_plugin(self) -> None:
        shown = {spec.name: {ticked(row[0])[0] for row in table(text_of(spec.name), "reason")} for spec in SHIPPED}

        assert reasons() == {name: found for name, found in shown.items() if found}

    def test_the_arguments_shown_are_good_ones(self) -> None:
        shown = [block for spec in SHIPPED for block in blocks(plugin_page(spec.name), "yaml")]
        given = {it["name"]: it["args"] for block in shown for it in yaml.safe_load(block)["pluginConfig"]}
        specs = {spec.name: spec for spec in SHIPPED}
        found: dict[str, Any] = {name: specs[name].args.model_validate(args) for name, args in given.items()}

        assert {"StickyNode", "NodeResourcesFit"} <= found.keys()
        assert [] == [name for name, args in found.items() if args == specs[name].args()]
        assert 5 == len(found["StickyNode"].owners)


def plugin_page(plugin: str) -> Path:
    return PLUGIN_PAGES / f"{re.sub(r'(?<!^)(?=[A-Z])', '-', plugin).lower()}.md"


def text_of(plugin: str) -> str:
    return plugin_page(plugin).read_text(encoding="utf-8")


def reasons() -> dict[str, set[str]]:
    """The ``REASON_…`` constants of each plugin."""
    found: dict[str, set[str]] = {}
    for module in pkgutil.walk_packages(plugins.__path__, "plugins."):
        for name, value in inspect.getmembers(importlib.import_module(module.name)):
            if name.startswith("REASON_"):
                plugin = module.name.removeprefix("plugins.").removeprefix("in_tree.").split(".")[0]
                found.setdefault(plugin.title().replace("_", ""), set()).add(value)
    return found


class Decision(NamedTuple):
    """An ADR. ``status``: as below the title, with its link."""

    path: str
    number: int
    title: str
    status: str


def decision(path: Path) -> Decision:
    """Parse the head of an ADR. Raises ``ValueError`` unless one status in a known form follows the title."""
    text = path.read_text(encoding="utf-8")
    found = re.match(r"# (\d+)\. (.+)\n\nStatus: (accepted|superseded by \[\d+\]\(\d{4}-[a-z0-9-]+\.md\))\n\n", text)
    if found is None or len(re.findall(r"^\W*Status:", text, re.MULTILINE)) != 1:
        raise ValueError(f"{path.name}: no title followed by one status")
    return Decision(path.name, int(found[1]), found[2], found[3])


def successor(status: str) -> tuple[int, str] | None:
    """Return number and file that supersede an ADR."""
    found = re.fullmatch(r"superseded by \[(\d+)\]\((.+)\)", status)
    return None if found is None else (int(found[1]), found[2])


class TestDecisions:
    def test_no_two_have_one_number(self) -> None:
        numbers = [int(path.name.partition("-")[0]) for path in ADRS]

        assert sorted(set(numbers)) == numbers

    def test_the_index_has_each_page_once_with_its_title_and_status(self) -> None:
        rows = table(ADR_INDEX.read_text(encoding="utf-8"), "number")

        assert [[f"[{it.number}]({it.path})", it.title, it.status] for it in map(decision, ADRS)] == [
            [number, title, status] for number, title, _, status in rows
        ]
        assert [] == [title for _, title, decides, _ in rows if not decides]

    def test_a_superseding_page_is_later_and_names_the_one_it_replaces(self) -> None:
        pages = {(it.number, it.path): it for it in map(decision, ADRS)}
        replaced = {page: key for page in pages.values() if (key := successor(page.status)) is not None}

        assert [] == [page for page, key in replaced.items() if key not in pages or key <= (page.number, page.path)]
        assert [] == [
            page
            for page, (_, path) in replaced.items()
            if f"]({page.path})" not in (ADR_INDEX.parent / path).read_text()
        ]

    @pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in ADRS])
    def test_a_change_since_then_comes_from_a_later_page(self, path: Path) -> None:
        lines = re.findall(r"^- Since (.*?): \S", path.read_text(encoding="utf-8"), re.MULTILINE)
        later = {f"[{it.number}]({it.path})": it.number for it in map(decision, ADRS)}
        numbers = [later.get(it, 0) for it in lines]

        assert sorted(set(numbers)) == numbers
        assert all(it > decision(path).number for it in numbers)

    @pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in ADRS])
    def test_each_has_a_number_a_context_a_decision_and_consequences(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")

        assert int(path.name.partition("-")[0]) == decision(path).number
        assert [] == [word for word in ("Context", "Decision", "Consequences") if f"**{word}.**" not in text]


SHOWN: Final = [
    pytest.param(path, language, block, id=f"{path.relative_to(ROOT)} {language} {number}")
    for path in DOCUMENTS
    for language in ("yaml", "json")
    for number, block in enumerate(blocks(path, language))
]


@pytest.mark.parametrize(("path", "language", "block"), SHOWN)
def test_yaml_and_json_that_is_shown_parses(path: Path, language: str, block: str) -> None:
    found = list(yaml.safe_load_all(block)) if language == "yaml" else [json.loads(block)]

    assert found != [None], path


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS])
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))

    assert [] == [link for link in links if "://" not in link and not (path.parent / link).exists()]


def anchors(path: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them; the second of two equal ones gets ``-1``."""
    text = re.sub(r"^( *)```.*?^\1```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for title in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        found.append(re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-"))
    return {name + (f"-{before}" if (before := found[:index].count(name)) else "") for index, name in enumerate(found)}


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS])
def test_links_to_a_heading_name_one_that_there_is(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", path.read_text(encoding="utf-8"))
    pages = [(path.parent / name if name else path, anchor) for name, anchor in links]

    assert [] == [f"{it.name}#{anchor}" for it, anchor in pages if it.suffix == ".md" and anchor not in anchors(it)]


def test_what_the_readme_makes_can_be_made() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    assert set(re.findall(r"^\s*\$ make ([a-z-]+)", readme, re.MULTILINE)) <= targets


def test_the_curl_lines_of_the_readme_are_those_of_the_example() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ (curl .*examples/requests.*)$", readme, re.MULTILINE)

    assert lines
    assert [] == [line for line in lines if line not in CURL.splitlines()]


def test_the_readme_counts_the_sample_cluster_right() -> None:
    """A saved cluster holds no Deployments: their ReplicaSets stand for them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = yaml.safe_load((ROOT / "examples" / "sample-cluster.yaml").read_text(encoding="utf-8"))["items"]
    zones = {it["metadata"]["labels"]["topology.kubernetes.io/zone"] for it in found if it["kind"] == "Node"}
    counts = {kind: sum(it["kind"] == kind for it in found) for kind in ("Node", "ReplicaSet", "VirtualMachine")}
    words = ("zero", "one", "two", "three", "four", *map(str, range(5, 12)), "twelve")

    told = re.search(
        r"serves a sample cluster \((\w+) zones, (\w+) nodes, (\w+) Deployments, (\w+) virtual",
        " ".join(readme.split()),
    )

    assert told is not None
    assert [words[len(zones)], *(words[count] for count in counts.values())] == list(told.groups())


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Of the lines of the example, then of those of the page about the API, each on a fresh sample cluster."""
    folder, found = tmp_path_factory.mktemp("curl"), list[Any]()
    for number, lines in enumerate((CURL.splitlines(), API_CURL)):
        (folder / str(number)).mkdir()
        with served(folder / str(number), "--cluster", SAMPLE) as http:
            found += [_run(line, http) for line in lines if line.startswith("curl ")]
    return found


class TestCurl:
    """examples/curl.txt against a real ``homeport serve``: every line as printed, and what its comment claims."""

    def test_one_more_pod_may_only_go_to_the_third_zone(self, answers: list[Any]) -> None:
        reason = "node(s) didn't match pod topology spread constraints"
        assert ["node-c1", "node-c2", "node-c3", "node-c4"] == answers[0]["NodeNames"]
        assert dict.fromkeys(NODES[:8], reason) == answers[0]["FailedAndUnresolvableNodes"]

    def test_the_emptier_the_zone_and_the_host_the_higher_the_score(self, answers: list[Any]) -> None:
        scores = {it["Host"]: it["Score"] for it in answers[1]}
        hosts = {"node-a1": 2, "node-b3": 1, "node-b4": 1, "node-c2": 1}
        zones = {"a": 2, "b": 2, "c": 1}
        load = {name: (zones[name[5]], hosts.get(name, 0)) for name in NODES}

        assert NODES == list(scores)
        assert [] == [
            (one, other)
            for one in NODES
            for other in NODES
            if load[one][0] <= load[other][0] and load[one][1] < load[other][1] and scores[one] <= scores[other]
        ]

    def test_the_machine_comes_back_to_its_home(self, answers: list[Any]) -> None:
        reason = "node(s) were not the pod's home"
        assert ["node-b2"] == answers[2]["NodeNames"]
        assert {name: reason for name in NODES if name != "node-b2"} == answers[2]["FailedAndUnresolvableNodes"]

    def test_an_eviction_helps_on_one_node_only(self, answers: list[Any]) -> None:
        assert ["node-c1"] == list(answers[3]["NodeNameToMetaVictims"])

    def test_bind_checks_again(self, answers: list[Any]) -> None:
        reason = "homeport: no longer possible: node(s) didn't match pod topology spread constraints"
        assert [{"Error": reason}, {"Error": ""}] == answers[4:6]

    def test_the_first_bind_makes_the_home(self, answers: list[Any]) -> None:
        before, bind, after = answers[6:9]
        assert (NODES, {"Error": ""}, ["node-a3"]) == (before["NodeNames"], bind, after["NodeNames"])

    def test_the_pages(self, answers: list[Any]) -> None:
        status, check = answers[9:11]
        assert ("", 12) == (status["problem"], status["feeds"]["v1 Node"]["objects"])
        assert {"consistent": True, "differences": []} == check

    def test_the_homes_are_those_of_before_and_the_one_that_was_made(self, answers: list[Any]) -> None:
        found = [(it["owner"]["name"], it["node"], it["machine"]) for it in answers[11]["items"]]

        assert [
            ("cache01", "node-a4", "waiting"),
            ("db01", "node-b2", "waiting"),
            ("mail01", "node-c3", "at_home"),
            ("web01", "node-a3", "at_home"),
        ] == found

    def test_the_page_about_the_api_shows_what_is_answered(self, answers: list[Any]) -> None:
        error, by_name, explained, deployment, pending, skew, loss, *others = answers[12:]
        cycle, waiting, homes, drain, simulation, balance, overview, nodes, node, workload = others
        error_shown, table_shown, remedies_shown = map(json.loads, blocks(ROOT / "docs" / "http-api.md", "json"))

        assert error_shown == error
        assert {*NODES[8:]} == {*explained["feasible"]} == {*cycle["totals"]}
        assert table_shown in explained["plugins"]["PodTopologySpread"]["tables"]
        assert remedies_shown[0]["change"] == explained["remedies"][0]["change"]
        assert {**explained, "node": by_name["node"]} == by_name
        assert "web-7d4b9c-new01" in [name for it in deployment["items"] for name in it["pods"]]
        assert "web-urgent" in [it["name"] for it in pending["items"]]
        assert ("web", "Deployment") in [(it["name"], it["kind"]) for it in skew["items"]]
        assert [("eu-1c", 0, 1, 1)] == [
            (it["value"], *(it[name]["waiting"] for name in ("gone", "tainted", "full"))) for it in loss["domains"]
        ]
        assert (6, 0) == (simulation["placed"], simulation["waiting"])
        assert (1, ["node-c4"]) == (balance["above"], [it["goesTo"] for it in balance["evictions"]])
        assert (6, 2) == (overview["pending"]["total"], overview["skews"]["total"])
        assert ("node-a1", 3) == (node["name"], len(nodes["zones"]))
        assert {"web-urgent", "web-7d4b9c-new01"} <= {it["name"] for it in workload["pods"]}
        assert ([], 2, "node-b2") == (waiting, len(homes["items"]), drain["items"][0]["node"])


def test_the_page_about_the_api_names_each_path_beside_the_verbs() -> None:
    service = HomeportService(Settings(cluster=str(SAMPLE)), SHIPPED, DEFAULT_WEIGHTS, version="1.2.3")
    paths = {path for path in service.web().openapi()["paths"] if path.startswith("/api/") or path.count("/") == 1}
    verbs = {"/filter", "/prioritize", "/preempt", "/bind"}

    assert {"/api/v1/cycle", "/readyz"} <= paths
    assert [] == [it for it in sorted(paths - verbs) if it not in page("http-api.md")]


def test_the_commands_of_the_runbook_read_paths_and_log_lines_that_there_are() -> None:
    text = page("runbook.md")
    paths = (
        HomeportService(Settings(cluster=str(SAMPLE)), SHIPPED, DEFAULT_WEIGHTS, version="1.2.3")
        .web()
        .openapi()["paths"]
    )
    read = {it.removeprefix("localhost:8889") for it in re.findall(r"localhost:8889/[\w/]+", text)}
    searched = re.findall(r"^\$ kubectl .* -c homeport.* \| grep (?:-i?E )?('.+?'|\S+)", text, re.MULTILINE)
    logged = [*(name for name, *_ in table(page("operations/logs.md"), "event")), *get_args(Outcome)]

    assert {"/metrics", "/api/v1/status"} <= read
    assert set() == read - paths.keys() - {"/metrics"}
    assert len(searched) > 10
    for words in {word for it in searched for word in it.strip("'").split("|") if "(" not in word and ")" not in word}:
        assert [it for it in logged if words in it], words


HOMES: Final = [
    pytest.param(line, id=f"{path.relative_to(ROOT)}: {line}")
    for path in (*DOCUMENTS, ROOT / "examples" / "curl.txt")
    for line in re.findall(r"homeport (homes [^`#\n]*?) *(?:[`#]|$)", path.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("line", HOMES)
def test_commands_about_homes_that_are_shown_can_be_said(line: str) -> None:
    assert parser().parse_args(with_list(shlex.split(line))).run


def test_commands_that_make_run_shows_name_the_server() -> None:
    """``make run PORT=…`` puts its own port in the place of the default one."""
    shown = (ROOT / "examples" / "curl.txt").read_text(encoding="utf-8")

    assert [] == [line for line in shown.splitlines() if "homeport homes" in line and "127.0.0.1:8888" not in line]


def test_the_index_names_every_document() -> None:
    pages = {it.name for it in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert [] == [name for name in sorted(pages) if f"]({name}" not in page("README.md")]


def test_the_page_about_operations_names_every_page_below_it() -> None:
    pages = {it.name for it in (ROOT / "docs" / "operations").glob("*.md")}

    assert [] == [name for name in sorted(pages) if f"](operations/{name})" not in page("operations.md")]


def test_nothing_is_installed_by_a_name_that_is_not_published() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (*DOCUMENTS, *(ROOT / "app").rglob("*.py"))}

    assert [] == [path.name for path, text in texts.items() if re.search(r"pip install '?homeport", text)]


def _run(line: str, http: httpx.Client) -> Any:
    """What a curl line prints, also an error: ``-d @file`` posts the file, from the folder of the project."""
    curl, silent, *rest = shlex.split(line)
    assert ("curl", "-s") == (curl, silent)
    path = rest[-1].partition(":8888")[2]
    if len(rest) == 1:
        return http.get(path).json()
    assert rest[0] == "-d"
    body = (ROOT / rest[1][1:]).read_bytes() if rest[1].startswith("@") else rest[1].encode()
    form = {"content-type": "application/x-www-form-urlencoded"}
    return http.post(path, content=body, headers=form).raise_for_status().json()


def test_each_right_to_change_something_is_told_where_security_is() -> None:
    """Under the default configuration; reads are told together."""
    roles = [it for it in yaml.safe_load_all((ROOT / "examples" / "rbac.yaml").read_text(encoding="utf-8")) if it]
    rules = [rule for role in roles for rule in role.get("rules", ())]
    changed = {it for rule in rules if {"create", "patch", "update"} & set(rule["verbs"]) for it in rule["resources"]}
    told = " ".join(row[0] for row in table((ROOT / "SECURITY.md").read_text(encoding="utf-8"), "permission")).lower()
    in_words = {"virtualmachines": "kinds that keep homes", "statefulsets": "kinds that keep homes"}

    assert {"events", "pods/binding", "pods/status"} <= changed
    assert [] == [it for it in sorted(changed) if in_words.get(it, it.removesuffix("s")) not in told]
