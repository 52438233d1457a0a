"""Pods and nodes are decoded as their picture says, or a plugin would miss of some of them what it declares."""

import ast
from pathlib import Path

APP = Path(__file__).parents[2] / "app"
PLAIN = {"decode_pod", "decode_node", "slim_pod", "slim_node"}
"""They leave out what is decoded on demand."""

DECODING = frozenset(f"app.kube.{it}_decoding" for it in ("core", "node", "pod"))
ALLOWED = {
    "app/kube/core_decoding.py": {"slim_pod", "slim_node"},  # of which it makes what a picture decodes by
    "app/kube/kinds.py": {"decode_pod", "decode_node"},  # which Cluster.decoder puts aside
}


def test_nobody_decodes_a_pod_or_a_node_by_a_decoder_of_his_own() -> None:
    found: dict[str, set[str]] = {}
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module in DECODING:
                names = PLAIN & {alias.name for alias in node.names}
                if names:
                    found.setdefault(str(path.relative_to(APP.parent)), set()).update(names)

    assert ALLOWED == found


def test_no_kind_is_decoded_past_its_picture() -> None:
    """``kind.decode`` is for tests, and for kinds of which a picture has only one form."""
    calls = [
        str(path.relative_to(APP.parent))
        for path in APP.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Attribute) and node.attr == "decode" and isinstance(node.value, ast.Name)
        if node.value.id == "kind"
    ]

    assert ["app/cache/cluster.py", "app/writes/api_writes.py"] == sorted(calls)
