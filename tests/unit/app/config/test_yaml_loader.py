"""YAML that is small in the file and large, or deep, in memory."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from app.config import yaml_loader
from app.config.document import YamlReader
from app.config.yaml_loader import check_aliases, loader_for


def load(text: str) -> list[Any]:
    return list(yaml.load_all(text, Loader=loader_for(text)))


def read(text: str) -> Any:
    root = yaml.compose(text, Loader=loader_for(text))
    assert root is not None
    return YamlReader().read(root, ())


DEEP = "\n" + "- " * 5100 + "1"
"""So deep that the loader in C is not taken."""

MERGES = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, y: 3}\nc: {<<: [*b, {z: 4}], x: 0}\n"
LAUGHS = "a0: &a0 {x: 1}\n" + "".join(
    f"a{it}: &a{it}\n  <<: [{', '.join([f'*a{it - 1}'] * 9)}]\n" for it in range(1, 9)
)


@pytest.mark.parametrize("of", [load, read], ids=["loader", "reader"])
def test_merges_add_keys_that_the_mapping_lacks(of: Any) -> None:
    merged = of(MERGES)
    assert {"x": 0, "y": 3, "z": 4} == (merged[0] if of is load else merged)["c"]


def test_each_document_is_merged() -> None:
    assert [{"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 0, "y": 3, "z": 4}}] * 50 == load(
        f"---\n{MERGES}" * 50
    )


@pytest.mark.parametrize("of", [load, read], ids=["loader", "reader"])
def test_merges_that_multiply(of: Any) -> None:
    with pytest.raises(yaml.constructor.ConstructorError, match=r"merges \(<<\) add more than 2,000,000 keys"):
        of(LAUGHS)


def test_merges_are_counted_over_all_documents_and_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    one = "---\na: &a {x: 1, y: 2}\nb: {<<: [*a, *a]}\n"
    monkeypatch.setattr(yaml_loader, "MOST_MERGED", 8)

    assert 2 == len(load(one * 2))
    with pytest.raises(yaml.constructor.ConstructorError, match="more than 8 keys"):
        load(one * 3)


def test_a_mapping_that_merges_itself() -> None:
    assert [{"a": {"x": 1}}] == load("a: &a {<<: *a, x: 1}")
    with pytest.raises(yaml.constructor.ConstructorError, match="merge"):
        load("a: &a {b: &b {<<: *a}, <<: *b}")


@pytest.mark.parametrize(
    "text",
    ["[" * 10_001 + "]" * 10_001, DEEP, "{a: " * 10_001 + "1" + "}" * 10_001],
    ids=["brackets", "indicators", "braces"],
)
def test_deep_nesting_is_an_error_and_no_crash(text: str) -> None:
    with pytest.raises(RecursionError):
        load(text)


def test_usual_nesting_takes_the_fast_loader() -> None:
    assert issubclass(loader_for("a: [1]"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert issubclass(loader_for(DEEP), yaml.SafeLoader)


def test_aliases_add_the_size_of_what_they_share() -> None:
    shared = {"x": [1, 2, 3]}
    document = {"a": shared, "b": [shared, shared]}  # 1 + 3 places, twice more than in memory

    check_aliases(document, 8)
    with pytest.raises(ValueError, match="aliases add more than 7 keys and list items"):
        check_aliases(document, 7)


def test_a_document_without_aliases_adds_nothing() -> None:
    document = {"a": [1, 2, {"b": 3}], "c": {}}

    check_aliases(document, 0)
    with pytest.raises(ValueError, match="aliases add more than 0"):
        check_aliases({**document, "again": document["a"]}, 0)


def test_aliases_that_multiply() -> None:
    value: list[Any] = ["ha"] * 9
    for _ in range(40):
        value = [value] * 9
    with pytest.raises(ValueError, match="aliases add more than"):
        check_aliases(value, 2_000_000)


def test_an_alias_of_its_own_parent() -> None:
    within: dict[str, Any] = {"x": {}}
    within["x"]["y"] = [within]
    with pytest.raises(ValueError, match="an alias refers to its own parent"):
        check_aliases(within, 10)
