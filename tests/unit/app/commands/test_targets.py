"""Which page explains what the user names."""

from __future__ import annotations

import pytest

from app.commands.targets import TargetError, explained, namespace_of, unknown_kind

Query = dict[str, str]


def of_context() -> str:
    return "home"


@pytest.mark.parametrize(
    ("target", "namespace", "path"),
    [
        ("web-1", None, "home/web-1"),
        ("web-1", "shop", "shop/web-1"),
        ("pod/web-1", None, "home/web-1"),
        ("PO/web-1", "shop", "shop/web-1"),
        ("shop/web-1", None, "shop/web-1"),
        ("shop/web-1", "shop", "shop/web-1"),
        ("pod/web 1", None, "home/web%201"),
    ],
)
def test_a_pod(target: str, namespace: str | None, path: str) -> None:
    assert (f"/api/v1/explain/{path}", {}) == explained(target, "", "", namespace, of_context)
    assert (f"/api/v1/explain/{path}", {"node": "n1"}) == explained(target, "", "n1", namespace, of_context)


@pytest.mark.parametrize(
    ("target", "selector", "query"),
    [
        ("deployment.apps/web", "", {"kind": "Deployment", "name": "web"}),
        ("virtualmachine.kubevirt.io/db01", "", {"kind": "VirtualMachine", "name": "db01"}),
        ("deploy/web", "", {"kind": "Deployment", "name": "web"}),
        ("STS/db", "", {"kind": "StatefulSet", "name": "db"}),
        ("cj/report", "", {"kind": "CronJob", "name": "report"}),
        ("cronjob.batch/report", "", {"kind": "CronJob", "name": "report"}),
        ("vm/db01", "", {"kind": "VirtualMachine", "name": "db01"}),
        ("", "app=web", {"labelSelector": "app=web"}),
    ],
)
def test_pods_of_a_workload_or_with_labels(target: str, selector: str, query: Query) -> None:
    assert ("/api/v1/explain/shop", query) == explained(target, selector, "", "shop", of_context)
    with pytest.raises(TargetError, match="--node is for one pod"):
        explained(target, selector, "n1", "shop", of_context)


@pytest.mark.parametrize(
    ("target", "selector", "namespace", "message"),
    [
        ("", "", None, "explain needs a POD or -l SELECTOR, and not both"),
        ("web-1", "app=web", None, "explain needs a POD or -l SELECTOR, and not both"),
        ("shop/web-1", "", "other", f"'shop/web-1' is in another namespace than -n other; or {unknown_kind('shop')}"),
        ("pod/", "", None, "'pod/' has no name"),
        ("deploy/", "", None, "'deploy/' has no name"),
        ("web-1", "", "Not A Name", "'Not A Name' cannot be the name of a namespace"),
        ("a/b/c", "", None, "'a/b' cannot be the name of a namespace"),
        ("/web-1", "", None, "'' cannot be the name of a namespace"),
    ],
)
def test_what_does_not_fit_together(target: str, selector: str, namespace: str | None, message: str) -> None:
    with pytest.raises(TargetError) as refused:
        explained(target, selector, "", namespace, of_context)

    assert message == str(refused.value)


def test_the_namespace_of_the_context_is_read_if_none_is_given() -> None:
    assert ("home", "shop") == (namespace_of(None, of_context), namespace_of("shop", of_context))


def test_a_selector_in_all_namespaces() -> None:
    query = {"labelSelector": "app=web"}
    assert ("/api/v1/explain", query) == explained("", "app=web", "", None, of_context, everywhere=True)
    for target, selector, node in (("web-1", "", ""), ("", "app=web", "n1")):
        with pytest.raises(TargetError, match=r"^-A needs -l SELECTOR"):
            explained(target, selector, node, None, of_context, everywhere=True)
