"""Some thousand random changes; `python -m tests.conformance.terms` makes a million."""

from tests.conformance.terms import run


def test_kept_terms_equal_those_counted_afresh() -> None:
    found = run(changes=3000, seed=20261122)

    assert found["rejections"] > 1000
    assert found["remembered"] > 20
    assert found["certain"] > 20
