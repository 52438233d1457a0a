"""Commands that ask: paths and queries for each target, and lists that are watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from app.commands import questions
from app.commands.arguments import kubectl_parser
from app.commands.service import CommandError, UsageError
from app.commands.targets import unknown_kind
from tests.builders import JsonObject

pytestmark = pytest.mark.usefixtures("nobodys_cluster")


class Pages:
    """Gives one answer after the other, the last one again and again."""

    def __init__(self, *answers: JsonObject) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._answers = list(answers)

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append((path, dict(query)))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError(path, body)


def run(pages: Pages, *words: str) -> int:
    arguments = kubectl_parser().parse_args(list(words))
    return questions.QUESTIONS[arguments.run](arguments, lambda: pages)


@pytest.mark.parametrize(
    ("words", "path", "query"),
    [
        (["web"], "/api/v1/explain/default/web", {}),
        (["po/web", "-n", "shop"], "/api/v1/explain/shop/web", {}),
        (["shop/web"], "/api/v1/explain/shop/web", {}),
        (["web", "--node", "n1"], "/api/v1/explain/default/web", {"node": "n1"}),
        (["sts/db"], "/api/v1/explain/default", {"kind": "StatefulSet", "name": "db"}),
        (["Deployment/web"], "/api/v1/explain/default", {"kind": "Deployment", "name": "web"}),
        (["-l", "app=web"], "/api/v1/explain/default", {"labelSelector": "app=web"}),
        (["a%2Fb"], "/api/v1/explain/default/a%252Fb", {}),
    ],
)
def test_targets_of_explain(words: list[str], path: str, query: dict[str, str]) -> None:
    pages = Pages({"items": [], "total": 0})

    with pytest.raises(CommandError, match=r"^no pods with the labels"):  # an answer without pods ends so
        run(pages, "explain", *words)

    assert [(path, query)] == pages.asked


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "explain needs a POD or -l SELECTOR, and not both"),
        (["web", "-l", "app=web"], "explain needs a POD or -l SELECTOR, and not both"),
        (["deploy/web", "--node", "n1"], "--node is for one pod"),
        (["-l", "app=web", "--node", "n1"], "--node is for one pod"),
        (["shop/web", "-n", "other"], f"'shop/web' is in another namespace than -n other; or {unknown_kind('shop')}"),
        (["web", "-A"], "-A needs -l SELECTOR, without --node; for a POD, give its namespace with -n"),
        (["-l", "app in"], "--selector: 'app in': not a label selector, such as app=web,tier in (a,b)"),
        (["web", "-n", "No_Label"], "'No_Label' cannot be the name of a namespace"),
    ],
)
def test_words_that_do_not_fit_together(words: list[str], told: str) -> None:
    with pytest.raises(UsageError) as raised:
        run(Pages({}), "explain", *words)

    assert told == str(raised.value)


def waiting(*names: str) -> JsonObject:
    fixed = {"namespace": "shop", "since": "", "gated": True, "judged": True, "feasible": 0, "total": 1, "opens": 0}
    texts = {"schedulerName": "s", "profile": "*", "reasons": [], "plugin": ""}
    return {"items": [{"name": name, **fixed, **texts} for name in names], "total": len(names), "next": None}


def test_a_watch_prints_what_is_new_or_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def twice(read: Callable[[], str]) -> Iterator[str]:
        yield read()
        yield read()

    monkeypatch.setattr(questions, "_again", twice)
    pages = Pages(waiting("one", "two"), waiting("two", "three"), waiting("one", "two", "three"))

    assert 0 == run(pages, "pending", "-n", "shop", "-o", "name", "-w")
    assert "pod/one\npod/two\npod/three\npod/one\n" == capsys.readouterr().out


def test_a_watch_prints_no_line_only_because_ages_or_widths_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(questions, "_again", lambda read: iter([read()]))
    first, second = waiting("one"), waiting("one", "with-a-longer-name")
    first["items"][0]["since"] = "2026-01-01T00:00:00Z"
    second["items"][0]["since"] = "2025-01-01T00:00:00Z"

    assert 0 == run(Pages(first, second), "pending", "-n", "shop", "-w")
    assert ["NAME", "one", "with-a-longer-name"] == [it.split()[0] for it in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_watch_of_a_document_is_refused(output: str) -> None:
    with pytest.raises(UsageError, match=f"does not fit -o {output}$"):
        run(Pages(waiting()), "pending", "-A", "-w", "-o", output)


@pytest.mark.parametrize("command", ["pending", "skew"])
def test_selectors_of_lists(command: str) -> None:
    pages = Pages({"items": [], "total": 0, "next": None})

    assert 0 == run(pages, command, "-A", "-l", "app=web")
    assert [(f"/api/v1/{command}", {"labelSelector": "app=web"})] == pages.asked
    with pytest.raises(UsageError, match=r"^--selector: "):
        run(pages, command, "-l", "app in")


def test_similar_names_of_a_workload_without_skew() -> None:
    none, some = ({"items": items, "next": None} for items in ([], [{"name": "web"}, {"name": "worker"}]))
    pages = Pages(none, some)

    with pytest.raises(CommandError, match=r"^no spread constraint of deploy/webb in .*; did you mean web\?$"):
        run(pages, "skew", "deploy/webb")
    assert ("/api/v1/skew", {"namespace": "default", "kind": "Deployment"}) == pages.asked[1]


def test_an_empty_list_is_said_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert [0, 0, 0] == [run(Pages(waiting()), "pending", *more) for more in (["-A"], ["-n", "x"], ["-o", "name"])]

    out, err = capsys.readouterr()
    assert ("", "homeport: no pods wait anywhere\nhomeport: no pods wait in namespace x (-A: in all)\n") == (out, err)
