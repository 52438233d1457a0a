"""``homeport homes`` against a served cluster: lists and owners."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from app.__main__ import main
from app.commands.homes import HOME as HOME_KEY
from app.commands.service import CommandError, answered
from plugins.sticky_node.annotations import HOME
from tests.api.village import COMPLETE, DELEGATED, configured
from tests.served import served

STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403}

LISTED = """\
NAMESPACE  OWNER                   NODE           STATE   MACHINE    POLICY
default    StatefulSet/db/0        n1             usable  at home    hard
default    StatefulSet/db/2        n2             away    elsewhere  hard
default    StatefulSet/db/10       n3             usable  idle       hard
machines   VirtualMachine/db01     n1             usable  waiting    grace
machines   VirtualMachine/gone01   n3             owner gone  idle   grace
machines   VirtualMachine/idle01   n2             away    idle       grace
machines   VirtualMachine/lost01   n9             gone    waiting    grace
machines   VirtualMachine/mail01   n1             usable  at home    grace
machines   VirtualMachine/moved01  n1             usable  elsewhere  grace
machines   VirtualMachine/odd01    'Not A Node'   gone    idle       grace
"""

WIDE = """\
OWNER NODE STATE MACHINE POLICY BECAUSE SINCE BY POD ON CONTRADICTION
VirtualMachine/idle01 n2 away idle grace cordoned 2026-11-20T10:00:00Z default - - -
"""

CONTRADICTORY = """\
NAMESPACE  OWNER                   NODE          STATE   MACHINE    POLICY  CONTRADICTION
default    StatefulSet/db/2        n2            away    elsewhere  hard    its pod runs on n1
machines   VirtualMachine/moved01  n1            usable  elsewhere  grace   its pod runs on n3
machines   VirtualMachine/odd01    'Not A Node'  gone    idle       grace   the annotation is not a valid node name
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a service with a delegated profile and a complete one."""
    folder = tmp_path_factory.mktemp("village")
    with served(folder, "--config", configured(folder, DELEGATED, COMPLETE)) as http:
        yield str(http.base_url)


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person without a kubeconfig."""
    monkeypatch.setenv("KUBECONFIG", "/nowhere")


def context(folder: Path, namespace: str) -> str:
    """A kubeconfig whose current context has a namespace."""
    found = {"current-context": "here", "contexts": [{"name": "here", "context": {"namespace": namespace}}]}
    (folder / "kubeconfig").write_text(yaml.safe_dump(found))
    return str(folder / "kubeconfig")


def ran(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    code = main(["homes", *arguments, "--server", url, "-q"])
    out, err = capsys.readouterr()
    return code, out, err


def squeezed(text: str) -> list[list[str]]:
    """Without the widths of the columns."""
    return [line.split() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["-A"], LISTED, id="all"),
        pytest.param(["-n", "machines", "--away", "-o", "wide"], WIDE, id="of a namespace, in full"),
        pytest.param(["-A", "--contradictory"], CONTRADICTORY, id="what cannot be"),
        pytest.param(
            ["-n", "machines", "--orphaned", "-o", "name"],
            "".join(f"virtualmachine.kubevirt.io/{it}\n" for it in ("gone01", "lost01", "odd01")),
            id="names of orphans",
        ),
    ],
)
def test_lists(url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    code, out, err = ran(capsys, url, *arguments)

    assert (0, squeezed(expected), "") == (code, squeezed(out), err)


def test_the_namespace_is_that_of_the_current_context(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with kubectl; who names one, or asks for all, need not have a kubeconfig at all."""
    monkeypatch.setenv("KUBECONFIG", context(tmp_path, "machines"))
    of_the_context = ran(capsys, url, "--away", "-o", "name")
    of_another = ran(capsys, url, "--away", "-o", "name", "-n", "default")
    of_all = ran(capsys, url, "--away", "-o", "name", "-A")
    kept = ran(capsys, url, "keep", "vm/idle01")
    monkeypatch.delenv("KUBECONFIG")
    of_a_file = ran(capsys, url, "--away", "-o", "name", "--kubeconfig", str(tmp_path / "kubeconfig"))
    no_file = ran(capsys, url, "--kubeconfig", "/nowhere")

    machine, member = "virtualmachine.kubevirt.io/idle01\n", "statefulset.apps/db/2\n"
    assert [(0, machine, ""), (0, member, ""), (0, member + machine, "")] == [of_the_context, of_another, of_all]
    told = "VirtualMachine machines/idle01 has no pod: there is no node to keep; move can name one"
    assert (3, "", f"homeport: {told}\n") == kept
    assert [(0, machine, ""), (3, "", "homeport: kubeconfig /nowhere: there is no such file\n")] == [of_a_file, no_file]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_for_a_pipe_it_is_what_the_page_says(url: str, capsys: pytest.CaptureFixture[str], output: str) -> None:
    code, out, _ = ran(capsys, url, "-A", "--node", "n1", "-o", output)

    expected = httpx.get(f"{url}/api/v1/homes", params={"node": "n1"}).json()["items"]
    found = json.loads(out) if output == "json" else yaml.safe_load(out)
    assert (0, {"items": expected}) == (code, found)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--node", "n1", "-n", "nowhere"], "homeport: no such homes in namespace nowhere (-A: in all)\n"),
        (["-n", "nowhere"], "homeport: no homes in namespace nowhere (-A: in all)\n"),
        (["--node", "n99", "-A"], "homeport: no such homes anywhere\n"),
        (["--node", "n99", "-A", "-o", "name"], ""),
    ],
)
def test_where_there_are_none_it_is_said_and_no_failure(
    url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert (0, "", told) == ran(capsys, url, *arguments)


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        ("db01", "'db01' is not an owner: use KIND/NAME, or KIND/NAME/ORDINAL"),
        ("vm/db01/x", "'vm/db01/x' is not an owner: use KIND/NAME, or KIND/NAME/ORDINAL"),
        ("lws/model/0-", "'lws/model/0-' is not an owner: use KIND/NAME, or KIND/NAME/ORDINAL"),
        ("lws/model/0-1-2", "'lws/model/0-1-2' is not an owner: use KIND/NAME, or KIND/NAME/ORDINAL"),
        ("vm//3", "'vm//3' is not an owner: use KIND/NAME, or KIND/NAME/ORDINAL"),
        ("vm/../x", "'vm/../x' is not an owner: use KIND/NAME, or KIND/NAME/ORDINAL"),
        ("pod/db01", "no pod keeps homes here; kinds that do: VirtualMachine, StatefulSet"),
        ("vm/db01/3", "a VirtualMachine has one home: use VirtualMachine/db01"),
        ("sts/db", "each pod of a StatefulSet has a home of its own: use StatefulSet/db/ORDINAL"),
    ],
)
@pytest.mark.parametrize("action", ["move", "release", "keep"])
def test_an_owner_that_cannot_be_is_refused(
    url: str, capsys: pytest.CaptureFixture[str], action: str, owner: str, told: str
) -> None:
    code, out, err = ran(capsys, url, action, owner, *(["n3"] if action == "move" else []))

    expected = 2 if "not an owner" in told else 3
    assert (expected, "") == (code, out)
    assert err.endswith(f"{told}\n")


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        (
            "vm/idle01",
            "VirtualMachine machines/idle01 has no pod: there is no node to keep; move can name one",
        ),
        ("virtualmachines.kubevirt.io/db01", "VirtualMachine machines/db01: its pod launcher-db01 has no node yet"),
        ("vm/gone01", "VirtualMachine machines/gone01 is gone, and its home is remembered; release forgets it"),
        (
            "vm/db10",
            "VirtualMachine machines/db10 has neither a home nor a pod, as far as Homeport knows; did you mean db01?",
        ),
        ("VirtualMachine/no", "VirtualMachine machines/no has neither a home nor a pod, as far as Homeport knows"),
    ],
)
def test_there_is_nothing_to_keep(url: str, capsys: pytest.CaptureFixture[str], owner: str, told: str) -> None:
    assert (3, "", f"homeport: {told}\n") == ran(capsys, url, "keep", owner, "-n", "machines")


@pytest.fixture(scope="module")
def many_kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a service whose homes belong to owners of every sort, two of which have the same kind."""
    group = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "perOrdinal": True}
    owners = [
        *({"apiVersion": f"{it}.example.com/v1", "kind": "Database"} for it in ("a", "b")),
        {**group, "through": [{"apiVersion": "apps/v1", "kind": "StatefulSet"}]},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "selector": {}},
    ]
    profile = {"schedulerName": "*", "pluginConfig": [{"name": "StickyNode", "args": {"owners": owners}}]}
    folder = tmp_path_factory.mktemp("kinds")
    with served(folder, "--config", configured(folder, profile)) as http:
        yield str(http.base_url)


def test_two_kinds_of_one_name_are_told_apart_by_their_group(
    many_kinds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = ran(capsys, many_kinds, "release", "database/x")
    other, _, none = ran(capsys, many_kinds, "keep", "Database.b.example.com/x")

    choices = "Database.a.example.com/x or Database.b.example.com/x"
    assert (3, f"homeport: database matches more than one kind: use {choices}\n") == (code, err)
    assert (3, "homeport: Database default/x has neither a home nor a pod, as far as Homeport knows\n") == (other, none)


def test_owners_of_every_sort_can_be_named(many_kinds: str, capsys: pytest.CaptureFixture[str]) -> None:
    named = {
        "lws/model/0-2": "LeaderWorkerSet default/model/0-2",
        "pvc/data": "PersistentVolumeClaim default/data",
        "persistentvolumeclaims/data": "PersistentVolumeClaim default/data",
    }
    found = {owner: ran(capsys, many_kinds, "keep", owner) for owner in named}

    told = "has neither a home nor a pod, as far as Homeport knows"
    assert {owner: (3, "", f"homeport: {it} {told}\n") for owner, it in named.items()} == found


@pytest.mark.parametrize("arguments", [["move", "vm/db01", "n3"], ["release", "vm/db01"], ["keep", "vm/mail01"]])
def test_homes_of_a_saved_cluster_are_not_written(
    url: str, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """The error names the cause, which is not a missing kubeconfig."""
    owner = f"VirtualMachine machines/{arguments[1].removeprefix('vm/')}"

    told = f"homeport: {owner}: Homeport serves a saved cluster here, so there is no API server to write to\n"
    assert (3, "", told) == ran(capsys, url, *arguments, "-n", "machines")


def test_a_home_needs_a_name(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = "homeport: VirtualMachine machines/db01: the name of the node is empty; release removes a home\n"

    assert (2, "", told) == ran(capsys, url, "move", "vm/db01", "", "-n", "machines")


def test_a_mistake_is_told_with_its_field(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = "homeport: node: String should have at most 253 characters\n"

    assert (3, "", told) == ran(capsys, url, "--node", "n" * 254)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(
            httpx.Response(403, json={**STATUS, "message": "services is forbidden", "details": {"kind": "services"}}),
            "services is forbidden",
            id="an API server",
        ),
        pytest.param(
            httpx.Response(500, json={**STATUS, "message": "no", "details": {"causes": [{"message": "it broke"}]}}),
            "it broke",
            id="a cause without a field",
        ),
        pytest.param(httpx.Response(502, html="<h1>no</h1>"), "http://proxy: 502 Bad Gateway", id="a proxy"),
        pytest.param(httpx.Response(200, html="<h1>yes</h1>"), "http://proxy: Expecting value", id="a web site"),
    ],
)
def test_what_others_answer_is_told(answer: httpx.Response, told: str) -> None:
    with pytest.raises(CommandError) as raised:
        answered("http://proxy", answer)

    assert str(raised.value).startswith(told)


def test_the_annotation_is_the_one_that_the_plugin_reads() -> None:
    assert HOME == HOME_KEY
