"""All JSON goes through one door, ``app.kube.decoding``, which goes as deep as the API server does."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOOR = ROOT / "app" / "kube" / "decoding.py"
OF_THE_OPERATOR = ROOT / "app" / "config" / "variables.py"
"""Settings in variables: whoever sets them is trusted, and is told of keys that stand twice."""

BEFORE_APP = ROOT / "homeport" / "__init__.py"
"""It reads what pip wrote about the installation, and runs before anything of ``app`` may be imported."""

OTHERS = {"msgspec.json.decode", "msgspec.json.Decoder", "json.loads", "json.load"}


def decoders_in(path: Path) -> set[str]:
    """The names by which a module decodes JSON past the door."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return OTHERS & {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_nobody_decodes_past_the_door() -> None:
    modules = [
        path
        for room in ("app", "homeport", "plugins")
        for path in (ROOT / room).rglob("*.py")
        if path not in (DOOR, OF_THE_OPERATOR, BEFORE_APP)
    ]

    assert modules
    assert {} == {str(path.relative_to(ROOT)): found for path in modules if (found := decoders_in(path))}
    assert {"msgspec.json.Decoder"} == decoders_in(DOOR)
