"""Some thousand random changes; `python -m tests.conformance.kept` makes a million."""

from tests.conformance.kept import run


def test_kept_equals_fresh() -> None:
    found = run(changes=6000, seed=20261122)

    assert found["rejections"] > 1000
    assert found["remembered"] > 20
